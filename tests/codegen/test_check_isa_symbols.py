import unittest

import check_isa_symbols

LISTING = """
tile_ops.cpp.o:
0000000000000000 W std::max(int, int)

tile_ops_avx2.cpp.o:
0000000000000000 D kpage::cpu::kAvx2OpsF32
0000000000000000 t local()
0000000000000000 V DW.ref.__gxx_personality_v0
0000000000000000 W EigenAvx2::internal::gebp()
{extra}
"""


class Faults(unittest.TestCase):
    def test_own_symbols_pass(self):
        found, objects = check_isa_symbols.faults(LISTING.format(extra=""))
        self.assertEqual(found, [])
        self.assertEqual(objects, ["tile_ops_avx2.cpp.o"])

    def test_shared_inline_function_is_found(self):
        for symbol in ("std::max(int, int)", "Eigen::internal::gebp()"):
            found, _ = check_isa_symbols.faults(
                LISTING.format(extra=f"0000000000000000 W {symbol}")
            )
            self.assertEqual(found, [f"tile_ops_avx2.cpp.o: {symbol}"])


if __name__ == "__main__":
    unittest.main()
