#!/bin/sh
# reigen_with_sum.sh COMMAND...: runs a compiler. If it makes a precompiled header, its checksum is written beside it, as HEADER.gch.sum.
# ccache then reads the checksum for each source that uses the header, and not the header's 120 MB (CCACHE_PCH_EXTSUM). Without a checksum it
# reads the header, so an old one goes before the header changes.
header=
last=
for word; do
  case "$last $word" in
    "-o "*.gch) header=$word ;;
  esac
  last=$word
done
[ -z "$header" ] || rm -f "$header.sum"
"$@" || exit
[ -z "$header" ] || { sha256sum <"$header" >"$header.sum.new" && mv "$header.sum.new" "$header.sum"; }
