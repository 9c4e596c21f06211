#!/usr/bin/env bash
# What `make install` installs, after the tree has been moved: programs, manual pages, completion and module file.
# Usage: test_install.sh BUILD SOURCE PROGRAM...      (the names of all programs)
# Ends with 77, "skipped", if a program is not built. What needs a tool that is not here is left out, visibly.
set -euo pipefail

build=$1 source=$2
shift 2
programs=("$@")
for program in "${programs[@]}"; do
  [[ -x $build/$program ]] || { echo "skipped: $build/$program is not built"; exit 77; }
done
tests=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/install/completion.sh
source "$tests/completion.sh"

folder=$(mktemp -d)
# The list of files is the user's, for `make uninstall`.
[[ ! -e $build/install_manifest.txt ]] || cp -p "$build/install_manifest.txt" "$folder/manifest_of_user"
restore() {
  rm -f "$build/install_manifest.txt"
  [[ ! -e $folder/manifest_of_user ]] || cp -p "$folder/manifest_of_user" "$build/install_manifest.txt"
  rm -rf "$folder"
}
trap restore EXIT

checks=0
check() {  # WHAT COMMAND...
  local what=$1
  shift
  checks=$((checks + 1))
  "$@" > "$folder/output" 2>&1 || { printf 'FAILED: %s\n  %s\n' "$what" "$*" >&2; cat "$folder/output" >&2; exit 1; }
}
has() { grep -qF -- "$2" "$1"; }             # FILE TEXT
lacks() { ! grep -rlF -- "$2" "$1"; }        # FOLDER TEXT: prints the files that have it
without() { ! command -v "$1" > /dev/null && echo "left out: $2 ($1 is not installed)"; }

prefix=/opt/megatron
DESTDIR=$folder/stage cmake --install "$build" --prefix "$prefix" --strip > "$folder/install.log" 2>&1 ||
  { cat "$folder/install.log" >&2; exit 1; }
cp "$build/install_manifest.txt" "$folder/manifest"
check "no warning while installing" lacks "$folder/install.log" Warning
moved="$folder/somewhere else"
mv "$folder/stage$prefix" "$moved"
share=$moved/share

programs_run_where_they_are() {
  local input=$share/megatron_train/inputs/demo.toml program
  for program in "${programs[@]}"; do
    check "$program starts" env -i PATH=/usr/bin:/bin HOME="$folder" "$moved/bin/$program" --version
    has "$folder/output" "$program " || { echo "FAILED: --version of $program" >&2; exit 1; }
    if command -v readelf > /dev/null; then
      readelf -d "$moved/bin/$program" > "$folder/dynamic"
      check "$program has a RUNPATH relative to itself" has "$folder/dynamic" '[$ORIGIN/../lib/megatron_train'
    fi
  done
  (cd / && check "a plan of an installed input" "$moved/bin/megatron_train" "$input" --dry-run --ranks 8) || exit 1
  (cd "$folder" && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    check "the launcher starts a program" "$moved/bin/megatron_launch" 2 "$moved/bin/megatron_train" --version) || exit 1
  check "the demo can be read" bash -n "$moved/bin/megatron_demo"
  check "documents lie next to inputs" test -f "$share/megatron_train/docs/README.md"
  check "no file names the build folder" lacks "$moved" "$build"
  check "no file names the sources" lacks "$moved" "$source/"
}

# Every option of --help is in the page with its description below it, and a formatter has nothing to say about any page.
manual_pages() {
  local program page option
  check "the launcher has a page" has "$share/man/man1/megatron_launch.1" 'megatron_launch \- '
  check "the demo has a page" has "$share/man/man1/megatron_demo.1" 'megatron_demo \- '
  if without help2man "manual pages of the programs"; then
    check "installing says so, too" has "$folder/install.log" "No manual pages of the programs are installed"
    return
  fi
  for program in "${programs[@]}"; do
    page=$share/man/man1/$program.1
    check "$program has a page" has "$page" "$program \\- "
    check "$program.1 says what the program is" lacks "$page" "\\- manual page for"
    for section in NAME SYNOPSIS DESCRIPTION '"EXIT STATUS"' EXAMPLES '"SEE ALSO"'; do
      check "$program.1 has $section" grep -qx "\.SH $section" "$page"
    done
    "$moved/bin/$program" --help > "$folder/help"
    for option in $(grep -oE '^  (-[a-z] \[ )?--[a-z-]+' "$folder/help" | grep -oE -- '--[a-z-]+'); do
      # The name, and perhaps its value and default, and nothing else.
      check "$program.1 has $option" \
        grep -qxE "(\\\\fB\\\\-.\\\\fR \\[ )?\\\\fB${option//-/\\\\-}\\\\fR( [^ ]+)?( \\(=.*\\)| \\])?" "$page"
    done
  done
  if without mandoc "mandoc's opinion on the manual pages"; then return; fi
  for page in "$share"/man/man1/*; do
    # help2man's date is a month, and ours have none.
    mandoc -T lint -W warning "$page" | grep -vE 'missing date, using ""|cannot parse date' > "$folder/lint" || true
    check "${page##*/} is without warnings" diff /dev/null "$folder/lint"
  done
}

module_file() {
  local module=$share/modulefiles/megatron_train init=/usr/share/modules/init/bash
  check "there is a module file" has "$(ls -d "$module"/*)" "$prefix"
  [[ -r $init ]] || { echo "left out: the module file (environment-modules is not installed)"; return; }
  cat > "$folder/module.sh" <<'SCRIPT'
source "$1"
module use "$2"
module load megatron_train
type -P megatron_train
module unload megatron_train
type -P megatron_train || echo gone
SCRIPT
  check "the module is loaded" env -i PATH=/usr/bin:/bin HOME="$folder" bash "$folder/module.sh" "$init" "${module%/*}"
  cp "$folder/output" "$folder/loaded"
  check "and names the tree that it is in" has "$folder/loaded" "$moved/bin/megatron_train"
  check "and is unloaded" has "$folder/loaded" gone
}

removal() {
  local stage=$folder/again
  mkdir -p "$stage$prefix" && cp -a "$moved"/. "$stage$prefix"
  echo mine > "$stage$prefix/share/megatron_train/inputs/mine.toml"
  check "uninstalling" env DESTDIR="$stage" "$source/scripts/release/uninstall.sh" "$folder/manifest"
  find "$stage" -type f > "$folder/left"
  printf '%s\n' "$stage$prefix/share/megatron_train/inputs/mine.toml" > "$folder/expected"
  check "only the user's file is left" diff "$folder/expected" "$folder/left"
}

programs_run_where_they_are
manual_pages
completion_of_bash
completion_of_zsh
module_file
removal
echo "install: $checks checks passed"
