// How values are spread over all ranks, in C++: counts by MPI_Allreduce, and the edges by MPI_Allgather.
//
//   mpicxx -O2 examples/histogram.cpp -o histogram
//   mpirun -n 4 bruckner exec ./histogram
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <vector>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  constexpr int bins = 16, values = 10000, rounds = 500;
  std::vector<std::int64_t> mine(bins), all(bins);
  std::uint64_t state = 88172645463325252ULL + static_cast<std::uint64_t>(rank);
  std::int64_t counted = 0;
  for (int round = 0; round < rounds; round++) {
    std::fill(mine.begin(), mine.end(), 0);
    for (int value = 0; value < values; value++) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      mine[state >> 60]++;
    }
    MPI_Allreduce(mine.data(), all.data(), bins, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    counted += std::accumulate(all.begin(), all.end(), std::int64_t{0});
  }
  std::vector<std::int64_t> fullest(size);
  std::int64_t own = *std::max_element(mine.begin(), mine.end());
  MPI_Allgather(&own, 1, MPI_INT64_T, fullest.data(), 1, MPI_INT64_T, MPI_COMM_WORLD);
  bool right = counted == std::int64_t{rounds} * values * size && fullest[rank] == own;
  if (rank == 0)
    std::cout << size << " ranks: " << counted << " values counted, the fullest bin of a rank has "
              << *std::max_element(fullest.begin(), fullest.end()) << "\n";
  MPI_Finalize();
  return right ? 0 : 1;
}
