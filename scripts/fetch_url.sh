# Sourced by the scripts that download: fetch_url URL FILE, by curl or wget. A FILE that is there is continued, or begun
# anew where the server cannot (curl's exit code 33).
fetch_url() {
  if command -v curl >/dev/null; then
    local curl=(curl --fail --location --silent --show-error --connect-timeout 20 --output "$2") code=0
    "${curl[@]}" --continue-at - "$1" || code=$?
    ((code == 33)) || return "$code"
    rm -f "$2"
    "${curl[@]}" "$1"
  elif command -v wget >/dev/null; then
    wget --quiet --timeout=20 --tries=2 --continue --output-document="$2" "$1"
  else
    echo "$(basename "$0" .sh): neither curl nor wget is installed" >&2
    exit 1
  fi
}
