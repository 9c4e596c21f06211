#!/bin/sh
# Makes every system call of a save fail, or die, once each; whatever happens, a checkpoint with the right numbers must
# be left. Usage: checkpoint_faults.sh TEST_CHECKPOINT [SECONDS]. Needs strace (exit 77, "skipped", without it). With
# CHECKPOINT_TEST_BACKGROUND=1 the saves are of the kind that is written by threads.
program=$1
patience=${2:-30}
command -v strace > /dev/null || { echo "strace is not installed: skipped"; exit 77; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
export CHECKPOINT_TEST_RUN="$scratch/run"

mkdir "$scratch/base"
for step in 1 2 3; do
  CHECKPOINT_TEST_RUN="$scratch/base" "$program" "[.inject]" > "$scratch/log" || { cat "$scratch/log"; exit 1; }
done
strace -f -qq -o /dev/null true || { echo "strace may not trace here: skipped"; exit 77; }

cases=0 failures=0 refused=0 killed=0
for call in pwrite64 write fsync ftruncate rename mkdir unlink rmdir openat newfstatat; do
  faults="error=EIO error=ENOSPC error=ESTALE signal=SIGKILL" last=40
  # What cannot be opened or looked at is no damage: it must not be removed. The first calls are those of the dynamic linker.
  case $call in openat | newfstatat) faults=error=ESTALE last=150 ;; esac
  for fault in $faults; do
    n=1
    while [ $n -le $last ]; do
      rm -rf "$CHECKPOINT_TEST_RUN"
      cp -r "$scratch/base" "$CHECKPOINT_TEST_RUN"
      rm -f "$CHECKPOINT_TEST_RUN/outcome"
      strace -f -qq -o "$scratch/trace" -e "trace=$call" -e "inject=$call:$fault:when=$n" \
        timeout "$patience" "$program" "[.inject]" > "$scratch/log" 2>&1
      code=$?
      cases=$((cases + 1))
      injected=$(grep -c -e INJECTED -e 'killed by SIGKILL' "$scratch/trace")
      if [ $code -eq 124 ] || [ $code -eq 139 ] || [ $code -eq 134 ]; then
        echo "FAILED: $call $fault at $n: the save hung or crashed (exit code $code)"
        failures=$((failures + 1))
      fi
      case "$(cat "$CHECKPOINT_TEST_RUN/outcome" 2> /dev/null)" in
        failed*) refused=$((refused + 1)) ;;
        "") killed=$((killed + 1)) ;;
      esac
      if ! "$program" "[.examine]" > "$scratch/log" 2>&1; then
        echo "FAILED: $call $fault at $n"
        cat "$scratch/log"
        failures=$((failures + 1))
      fi
      [ "$injected" -eq 0 ] && break
      n=$((n + 1))
    done
  done
done
echo "$cases saves with a fault: $refused refused, $killed killed, $failures wrong"
[ $failures -eq 0 ] && [ $refused -gt 0 ] && [ $killed -gt 0 ]
