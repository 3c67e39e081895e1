#!/bin/sh
# reigen_with_sum.sh COMMAND...: runs a compiler. If it makes a precompiled header, its checksum is written beside it, as HEADER.gch.sum.
# ccache then reads the checksum for each source that uses the header, and not the header's 120 MB (CCACHE_PCH_EXTSUM).
"$@" || exit
last=
for word; do
  case "$last $word" in
    "-o "*.gch) sha256sum <"$word" >"$word.sum" || exit ;;
  esac
  last=$word
done
