# What a browser keeps: a cache of many files, and a history in SQLite with a write-ahead log.
. "$(dirname "$0")/session.sh"
export TEAL
python3 - "$PART" "$DIR" "$SEED" << 'END'
import hashlib, os, random, sqlite3, subprocess, sys
part, top, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
draw = random.Random(seed if part == "session" else 1)
cache = os.path.join(top, "cache")
os.makedirs(cache, exist_ok=True)
history = sqlite3.connect(os.path.join(top, "places.sqlite"))
history.execute("pragma journal_mode=wal")
history.execute("create table if not exists visits(url text, at integer)")
def think():
    subprocess.run([os.environ["TEAL"], "lab", "record", top, "--mark", "think"], check=True, stdout=subprocess.DEVNULL)
def fetch(url):
    path = os.path.join(cache, hashlib.sha1(url.encode()).hexdigest())
    if os.path.exists(path):
        with open(path, "rb") as entry:
            return len(entry.read())
    size = min(int(draw.lognormvariate(9.3, 1.4)), 2_000_000)
    with open(path, "wb") as entry:
        entry.write(os.urandom(size))
    return size
def page(n):
    for part in range(3 + n % 17):
        fetch("page %d part %d" % (n, part))
    history.execute("insert into visits values(?, ?)", ("page %d" % n, n))
    history.commit()
if part == "prepare":
    for n in range(150):
        page(n)
else:
    for step in range(draw.randrange(10, 22)):
        page(draw.randrange(150) if draw.random() < 0.6 else draw.randrange(150, 1000))
        think()
history.close()
END
