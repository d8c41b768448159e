#include "cpu/tile_ops_body.h"

namespace kpage::cpu {

const TileOps<float> kAvx2OpsF32 = kTileBodyOps<float>;
const TileOps<double> kAvx2OpsF64 = kTileBodyOps<double>;

}  // namespace kpage::cpu
