#!/usr/bin/env bash
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# step.sh NAME COMMAND…: runs the command and prints how many seconds it took, whatever became of it.
set -u
name=$1
shift
printf '== %s\n' "$name"
start=$SECONDS
"$@"
code=$?
if [ "$code" -eq 0 ]; then
  printf '== %s: %d s\n' "$name" $((SECONDS - start))
else
  printf '== %s: FAILED with exit code %d after %d s\n' "$name" "$code" $((SECONDS - start)) >&2
fi
exit "$code"
