#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Proves from the object files that the core is pure, and that no program but refit-engine can unpickle (RC-PAY-07).

    purity.py BUILD_FOLDER
    purity.py --objects NAME.o …

Includes do not show what code calls; the symbols that an object file leaves undefined do. A clock, a sleep, a socket, a
thread, getenv or random_device shows up here by name.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tomllib

TOOLS = pathlib.Path(__file__).resolve().parent

# What the core may call, demangled. Everything else is named and fails.
ALLOWED = re.compile("|".join([
    r"operator (new|delete)(\[\])?\(.*",
    r"(memcpy|memmove|memset|memcmp|memchr|bcmp|strlen|strcmp|strncmp)",
    # Unwinding and function-local statics.
    r"_Unwind_Resume|__gxx_personality_v0|__dso_handle|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail",
    r"__cxa_(begin_catch|end_catch|rethrow|throw|allocate_exception|free_exception|pure_virtual|atexit|guard_\w+|"
    r"throw_bad_array_new_length)",
    r"std::(__throw_\w+|terminate|__glibcxx_assert_fail)\(.*",
    # Reference counts of shared_ptr: it only asks whether they need atomic operations.
    r"__libc_single_threaded",
    # Containers and strings.
    r"std::_Rb_tree_\w+\(.*|std::__detail::_List_node_base::.*",
    r".*\bstd::(__cxx11::)?basic_string(_view)?<char, .*",
    r"std::(to_chars|from_chars)\(.*",
    r"(vtable|typeinfo|typeinfo name|VTT) for (std|__cxxabiv1)::.*",
    r"std::(exception|logic_error|length_error|out_of_range|bad_\w+)::.*",
    # Our own, but never an edge folder's.
    r"(vtable for |typeinfo for |typeinfo name for |VTT for |guard variable for )?"
    r".*\brefit::(?!(exec|observe|device|checkpoint|transport|engine|rpc|config|runtime|cli)::).*",
]))
# A failed check prints and ends the process: the one place that may.
CHECK_FAILURE = re.compile(r"abort|fprintf|fputs|fwrite|stderr|__fprintf_chk")
# Nothing with this in its name may be in a program other than refit-engine.
UNPICKLER = re.compile(r"refit::.*\breference::|PickleReader|[Uu]npickle")


def symbols(file, *options):
    done = subprocess.run(["nm", "-C", *options, str(file)], capture_output=True, text=True, check=True)
    lines = (line[17:].split(None, 1) for line in done.stdout.splitlines())  # after the address: kind and name
    return [line[1] for line in lines if len(line) == 2]


def impure(object_file):
    """The names that the object file needs and the core may not use."""
    extra = CHECK_FAILURE if object_file.name.startswith("check.cc") else None
    return [s for s in symbols(object_file, "-u")
            if not ALLOWED.fullmatch(s) and not (extra and extra.fullmatch(s))]


def core_objects(build):
    with open(TOOLS / "layers.toml", "rb") as file:
        core = tomllib.load(file)["core"]
    pattern = "src/refit/{0}/CMakeFiles/refit_{0}.dir/**/*.o"
    return [o for folder in core for o in sorted(build.glob(pattern.format(folder)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", type=pathlib.Path)
    parser.add_argument("--objects", nargs="+", type=pathlib.Path, default=[])
    arguments = parser.parse_args()
    objects = arguments.objects or core_objects(arguments.build)
    if not objects:
        print(f"purity: no object files of the core under {arguments.build} (build it first: make build)")
        return 1
    problems = 0
    for file in objects:
        for name in impure(file):
            problems += 1
            print(f"{file}: the core may not use {name} (its subject belongs to an edge folder)")
    programs = [p for p in [arguments.build / "bin/refit"] if p.exists()] if arguments.build else []
    for file in programs:
        for name in symbols(file):
            if UNPICKLER.search(name):
                problems += 1
                print(f"{file}: holds {name} (only refit-engine may unpickle: RC-PAY-07)")
                break
    print(f"purity: {len(objects)} object files of the core, {len(programs)} programs, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
