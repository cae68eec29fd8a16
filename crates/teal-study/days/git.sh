# Somebody works with git: status, log, diff, commits, branches.
. "$(dirname "$0")/session.sh"
case $PART in
prepare)
  git clone -q --no-hardlinks --depth 40 "file://$REPOSITORY" "$DIR/project"
  cd "$DIR/project"
  git config user.name nobody
  git config user.email nobody@example.org
  git branch topic HEAD~10
  ;;
session)
  cd "$DIR/project"
  for step in 1 2 3 4 5 6; do
    git status > /dev/null
    think
    pick 5
    case $picked in
    0) git log --stat -8 > /dev/null ;;
    1) git diff HEAD~5 > /dev/null ;;
    2) git checkout -q topic && think && git checkout -q - ;;
    3) git grep -n energy > /dev/null ;;
    4) git blame docs/energy.md > /dev/null ;;
    esac
    think
    pick "$(git ls-files docs | wc -l)"
    echo "line $step" >> "$(git ls-files docs | sed -n "$((picked + 1))p")"
    git commit -qam "step $step"
    think
  done
  ;;
esac
