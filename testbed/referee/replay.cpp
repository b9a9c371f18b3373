// Replays traces under SimGrid: the first argument is the directory of NUMBER.txt. Replays traces under SimGrid: the first argument is the directory of the files RANK.txt. The last rank to finish prints its time.
#include <cstdio>
#include <simgrid/s4u.hpp>
#include <smpi/smpi.h>
#include <string>

static int through = 0;

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const auto *properties = simgrid::s4u::Actor::self()->get_properties();
  const std::string instance = properties->at("instance_id");
  const int rank = std::stoi(properties->at("rank"));
  const std::string file = std::string(argv[1]) + "/" + std::to_string(rank) + ".txt";
  smpi_replay_run(instance.c_str(), rank, 0, file.c_str());
  if (++through == std::stoi(argv[2])) std::printf("through %.12e\n", simgrid::s4u::Engine::get_clock());
  return 0;
}
