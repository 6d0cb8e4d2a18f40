// The order in which blocks visit the grid.
#pragma once
#include <tilelang/types.cuh>

namespace tl {

// Block number `id` of a grid of `width` columns and `height` rows, visited in panels of `panel` rows: down the rows of a panel before
// the next column, every other panel backwards.
TL_DEVICE void visit_in_panels(int id, int panel, int width, int height, int& column, int& row) {
  int size = panel * width, which = id / size, rest = id % size;
  int rows = height - which * panel;
  rows = rows < panel ? rows : panel;
  int at = rest / rows;
  column = which & 1 ? width - 1 - at : at;
  row = which * panel + rest % rows;
}

}  // namespace tl
