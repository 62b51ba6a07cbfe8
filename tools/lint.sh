#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# lint.sh format | tidy | fuzz SECONDS: what needs Clang 19 (tools/deps.sh --lint installs it).
#   format  the formatter's opinion of every file; prints what would change
#   tidy    clang-tidy on the files that differ from LINT_BASE (default: the last commit; about 7 s a file)
#   fuzz    each fuzz target for so many seconds, starting from its corpus
set -euo pipefail
cd "$(dirname "$0")/.."

need() {
  command -v "$1" >/dev/null && return
  echo "$1 is not installed, nothing checked (tools/deps.sh --lint installs it)"
  exit 0
}

case ${1:?lint.sh: format, tidy or fuzz} in
  format)
    need clang-format-19
    git ls-files '*.h' '*.cc' | xargs clang-format-19 --dry-run -Werror
    ;;
  tidy)
    need clang-tidy-19
    [ -f build/compile_commands.json ] || cmake --preset dev --log-level=WARNING
    base=${LINT_BASE:-HEAD}
    { git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } |
      { grep '\.cc$' || true; } | sort -u | xargs -r -n 1 -P "$(nproc)" clang-tidy-19 -p build --quiet
    ;;
  fuzz)
    ninja -C build-fuzz -t targets all | sed -n 's,^bin/\([a-z_]*_fuzz\): .*,\1,p' | while read -r target; do
      ninja -C build-fuzz "$target"
      mkdir -p "build-fuzz/corpus/$target"
      "build-fuzz/bin/$target" -max_total_time="${2:-60}" "build-fuzz/corpus/$target" "tests/corpus/$target"
    done
    ;;
  *)
    echo "lint.sh: unknown task $1 (known: format, tidy, fuzz)" >&2
    exit 2
    ;;
esac
