#include "cpu/tile_ops_body.h"

namespace kpage::cpu {

const TileOps<float> kPortableOpsF32 = kTileBodyOps<float>;
const TileOps<double> kPortableOpsF64 = kTileBodyOps<double>;

}  // namespace kpage::cpu
