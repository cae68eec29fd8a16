# Music is played in pieces as a player reads them, photos are looked at, and some come from a camera.
. "$(dirname "$0")/session.sh"
case $PART in
prepare)
  mkdir "$DIR/music" "$DIR/photos"
  for n in 1 2 3 4 5 6 7 8; do head -c 4000000 /dev/urandom > "$DIR/music/$n.mp3"; done
  for n in $(seq 60); do head -c $((200000 + n * 9000)) /dev/urandom > "$DIR/photos/$n.jpg"; done
  ;;
session)
  pick 8
  first=$picked
  for n in 1 2 3; do
    # 128 kbit/s: 256 KiB last 16.4 s.
    for piece in $(seq 0 15); do
      dd if="$DIR/music/$(((first + n) % 8 + 1)).mp3" of=/dev/null bs=262144 skip="$piece" count=1 iflag=direct 2> /dev/null || true
      play 16384
    done
  done
  for n in $(seq 15); do
    pick 60
    cat "$DIR/photos/$((picked + 1)).jpg" > /dev/null
    think
  done
  pick 6
  for n in $(seq "$picked"); do
    head -c 1500000 /dev/urandom > "$DIR/photos/new-$SEED-$n.jpg"
    sync "$DIR/photos/new-$SEED-$n.jpg"
  done
  think
  ;;
esac
