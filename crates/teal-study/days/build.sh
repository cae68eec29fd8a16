# Somebody builds a program of sixty files with make and cc: once whole, then after changes.
. "$(dirname "$0")/session.sh"
case $PART in
prepare)
  mkdir "$DIR/program"
  cd "$DIR/program"
  for n in $(seq 60); do
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include "all.h"\nint f%d(int a) { char b[64]; snprintf(b, sizeof b, "%%d", a); return atoi(b) + %d; }\n' "$n" "$n" > "f$n.c"
    echo "int f$n(int);" >> all.h
  done
  printf '#include "all.h"\nint main(void) { return f1(2) + f60(3) == 0; }\n' > main.c
  printf 'O = $(patsubst %%.c,%%.o,$(wildcard *.c))\nprogram: $(O)\n\tcc -o $@ $(O)\n%%.o: %%.c all.h\n\tcc -O1 -g -c $<\n' > Makefile
  ;;
session)
  cd "$DIR/program"
  pick 2
  [ "$picked" = 0 ] || make -s
  think
  for step in 1 2 3 4 5; do
    for change in 1 2; do
      pick 60
      echo "/* $step */" >> "f$((picked + 1)).c"
    done
    think
    make -s
    ./program || true
    think
  done
  ;;
esac
