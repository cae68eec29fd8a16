# What all sessions share: `pick N` draws a number below N into $picked by $SEED, `think` and `play` say that somebody takes
# time here, which is drawn when days are composed.
set -eu
PART=$1 DIR=$2 SEED=$3
pick() { SEED=$(((SEED * 1103515245 + 12345) & 0x7fffffff)); picked=$((SEED / 65536 % $1)); }
mark() { "$TEAL" lab record "$DIR" --mark "$1" > /dev/null; }
think() { mark think; }
# The pace of something played: so many milliseconds to the next piece.
play() { mark "play $1"; }
