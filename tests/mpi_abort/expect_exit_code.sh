#!/bin/sh
# expect_exit_code.sh CODE COMMAND...: succeeds if COMMAND ends with CODE within ten seconds.
expected=$1
shift
timeout -k 2 10 "$@"
code=$?
[ "$code" -eq "$expected" ] && exit 0
echo "exit code $code, expected $expected (124: not ended after ten seconds): $*" >&2
exit 1
