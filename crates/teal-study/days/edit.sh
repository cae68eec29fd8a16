# Somebody writes in a source tree: looks for words, opens files in vim, changes them, saves them.
. "$(dirname "$0")/session.sh"
case $PART in
prepare)
  git clone -q --no-hardlinks --depth 1 "file://$REPOSITORY" "$DIR/project"
  ;;
session)
  cd "$DIR/project"
  for step in 1 2 3 4 5 6 7 8 9 10; do
    pick 4
    if [ "$picked" = 0 ]; then
      pick 9
      grep -rn "fn new$picked\|energy" --include='*.md' . > /dev/null || true
      think
    fi
    files=$(git ls-files 'docs/*.md' 'crates/*/src/*.rs')
    pick "$(echo "$files" | wc -l)"
    file=$(echo "$files" | sed -n "$((picked + 1))p")
    pick 3
    for save in $(seq 0 "$picked"); do
      vim -u NONE -es -c 'set swapfile backup' -c "normal Go// line $step $save" -c wq "$file" < /dev/null || true
      think
    done
  done
  ;;
esac
