"""The checker finds what it is for."""

import unittest

import check_codegen

CLEAN = """ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers
"""
PTX = "\n".join(check_codegen.NEEDED)


class Faults(unittest.TestCase):
    def test_clean_code_has_none(self):
        self.assertEqual(check_codegen.faults(CLEAN, PTX), [])

    def test_each_fault_is_named(self):
        for said, ptx, part in (
            (CLEAN.replace("0 bytes stack", "40 bytes stack"), PTX, "40 bytes of stack frame"),
            (CLEAN.replace("0 bytes spill stores", "44 bytes spill stores"), PTX, "spill stores"),
            (CLEAN.replace("0 bytes spill loads", "8 bytes spill loads"), PTX, "spill loads"),
            (CLEAN + "16 bytes lmem", PTX, "local memory"),
            (CLEAN.replace("168", "176"), PTX, "176 registers"),
            (CLEAN + "ptxas info : (C7514) Potential Performance Loss", PTX, "C7514"),
            ("", PTX, "no registers"),
            (CLEAN, PTX.replace("wgmma.mma_async", ""), "no wgmma.mma_async"),
            (CLEAN, PTX.replace("cp.async.bulk.tensor", ""), "no cp.async.bulk.tensor"),
        ):
            with self.subTest(part):
                self.assertTrue(any(part in fault for fault in check_codegen.faults(said, ptx)))


if __name__ == "__main__":
    unittest.main()
