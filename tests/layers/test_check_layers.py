#!/usr/bin/env python3
"""The layer checker sees a wrong include of every kind, and nothing where there is none."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_layers  # noqa: E402

LAYERS = ("base", "layout", "plan", "oracle", "cpu", "kernels", "api")


class CheckLayers(unittest.TestCase):
    def violations(self, files):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for layer in LAYERS:
                (root / "src" / layer).mkdir(parents=True)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return list(check_layers.check(root))

    def expect(self, files, *parts):
        found = self.violations(files)
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_includes_along_the_arrows_pass(self):
        self.assertEqual(
            self.violations(
                {
                    "src/plan/a.cpp": '#include "plan/a.h"\n#include "layout/b.h"\n#include <vector>\n',
                    "src/oracle/a.cpp": "#include <kpage/layout.h>\n#include <Eigen/Core>\n",
                    "src/api/a.cpp": '#include "cpu/x.h"\n#include "kernels/y.h"\n',
                    "src/kernels/sm90/forward/k.cuh": '#include "kernels/ptx/tma.h"\n#include <cuda.h>\n',
                    "include/kpage/plan.h": "#include <kpage/layout.h>\n#include <span>\n",
                    "tools/kpage/main.cpp": '#include <CLI/CLI.hpp>\n#include "kpage/attention.h"\n',
                    "bindings/torch/ops.cpp": "#include <torch/csrc/stable/tensor.h>\n",
                }
            ),
            [],
        )

    def test_every_forbidden_pair_is_seen(self):
        for layer, allowed in check_layers.ALLOWED.items():
            if layer not in LAYERS:
                continue
            for target in LAYERS:
                if target == layer or target in allowed:
                    continue
                with self.subTest(layer=layer, target=target):
                    self.expect(
                        {f"src/{layer}/deep/a.cpp": f'\n#include "{target}/x.h"\n'},
                        f"src/{layer}/deep/a.cpp:2:",
                        f"of {target}",
                    )

    def test_public_header_of_a_higher_layer(self):
        self.expect({"src/oracle/a.cpp": "#include <kpage/plan.h>\n"}, "oracle", "plan")
        self.expect({"src/plan/a.h": '#include "kpage/attention.h"\n'}, "plan", "api")
        self.expect({"include/kpage/layout.h": "#include <kpage/plan.h>\n"}, "layout", "plan")

    def test_public_header_with_a_private_or_cuda_include(self):
        self.expect({"include/kpage/plan.h": '#include "plan/format.h"\n'}, "not installed")
        self.expect({"include/kpage/attention.h": "#include <cuda_runtime.h>\n"}, "CUDA toolkit")

    def test_tools_and_bindings(self):
        self.expect({"tools/kpage/a.cpp": '#include "cpu/x.h"\n'}, "tools", "cpu")
        self.expect({"bindings/torch/ops.cpp": '#include "kernels/x.h"\n'}, "bindings", "kernels")

    def test_third_party_out_of_place(self):
        self.expect({"src/api/a.cpp": "#include <torch/csrc/stable/tensor.h>\n"}, "torch/")
        self.expect({"src/layout/a.cpp": "#include <nlohmann/json.hpp>\n"}, "nlohmann/")
        self.expect({"bindings/torch/ops.cpp": "#include <ATen/ATen.h>\n"}, "ATen/")

    def test_parent_folder(self):
        self.expect({"src/base/a.cpp": '#include "../plan/format.h"\n'}, "climbs out")

    def test_unusual_spelling(self):
        self.expect({"src/base/a.cuh": '  #  include"plan/format.h"\n'}, "base", "plan")

    def test_comments_are_no_includes(self):
        text = '// #include "plan/x.h"\n/*\n#include "plan/y.h"\n*/\n'
        self.assertEqual(self.violations({"src/base/a.h": text}), [])

    def test_unknown_folder(self):
        self.expect({"src/misc/a.h": ""}, "src/misc", "unknown folder")


if __name__ == "__main__":
    unittest.main()
