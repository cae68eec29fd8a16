# Mail comes into a maildir, is read, flagged and answered; an index in SQLite is kept.
. "$(dirname "$0")/session.sh"
[ "$PART" = prepare ] || mark think
export TEAL
python3 - "$PART" "$DIR" "$SEED" << 'END'
import mailbox, os, random, sqlite3, subprocess, sys
part, top, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
draw = random.Random(seed if part == "session" else 1)
box = mailbox.Maildir(os.path.join(top, "mail"), create=True)
index = sqlite3.connect(os.path.join(top, "index.sqlite"))
index.execute("create table if not exists mail(key text primary key, subject text, words text)")
def think():
    subprocess.run([os.environ["TEAL"], "lab", "record", top, "--mark", "think"], check=True, stdout=subprocess.DEVNULL)
def deliver(n):
    size = min(int(draw.lognormvariate(8.5, 1.3)), 400_000)
    text = "Subject: number %d\n\n%s" % (n, "".join(draw.choice("abcdefgh \n") for _ in range(size)))
    key = box.add(mailbox.MaildirMessage(text))
    index.execute("insert or replace into mail values(?, ?, ?)", (key, "number %d" % n, text[:400]))
    index.commit()
if part == "prepare":
    for n in range(400):
        deliver(n)
else:
    for step in range(draw.randrange(5, 9)):
        for n in range(draw.randrange(1, 5)):
            deliver(1000 * step + n)
        think()
        keys = sorted(box.keys())
        for key in draw.sample(keys, draw.randrange(2, 6)):
            message = box[key]
            message.add_flag("S")
            box[key] = message
            think()
        index.execute("select count(*) from mail where words like '%ab ba%'").fetchone()
        think()
index.close()
END
