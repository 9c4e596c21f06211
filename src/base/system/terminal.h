// Terminal: whether people watch standard output on a terminal, where a line can be drawn again and in colour.
//
// Under an MPI launcher a rank's standard output says nothing: mpirun puts a new terminal there, whatever its
// output is. There scripts/launch.sh hands on what it sees, in MEGATRON_TERMINAL.
#pragma once

namespace megatron {

struct Terminal {
  int columns = 0;      ///< 0: none, or one that cannot redraw a line (TERM=dumb)
  bool colour = false;  ///< not where NO_COLOR is set

  bool live() const { return columns > 0; }
};

/// The terminal of standard output and error, which must both be connected to it.
Terminal standard_terminal();

}  // namespace megatron
