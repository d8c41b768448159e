"""Checks that objects compiled for one instruction set share no inline function with the rest.

    check_isa_symbols.py NM LIBRARY

The linker keeps one copy of a weak symbol. If an object named *_avx2 or *_avx512 defined one that
others define too, code for any CPU could end up running AVX instructions. Eigen is renamed in those
objects, so its symbols are their own.
"""

import re
import subprocess
import sys

MEMBER = re.compile(r"^(\S+_(avx2|avx512)\.cpp\.o):$")
SHARED = re.compile(r"^[0-9a-f]* +[VvWwu] (.+)$")
OWN_NAMESPACE = {"avx2": "EigenAvx2::", "avx512": "EigenAvx512::"}
# The compiler's own handles, which hold data and no code.
HARMLESS = re.compile(r"^DW\.ref\.")


def faults(listing):
    """Shared symbols in the output of nm -C --defined-only, as 'object: symbol'; and the objects
    that were looked at."""
    found, objects, member, own = [], [], None, None
    for line in listing.splitlines():
        if line.endswith(":"):
            match = MEMBER.match(line)
            member, own = (match[1], OWN_NAMESPACE[match[2]]) if match else (None, None)
            if member:
                objects.append(member)
            continue
        symbol = SHARED.match(line)
        if member and symbol and own not in symbol[1] and not HARMLESS.match(symbol[1]):
            found.append(f"{member}: {symbol[1]}")
    return found, objects


def main():
    nm, library = sys.argv[1:]
    listing = subprocess.run(
        [nm, "-C", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    found, objects = faults(listing)
    if not objects:
        sys.exit(f"{library}: no object for an instruction set in it")
    for fault in found:
        print(fault)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
