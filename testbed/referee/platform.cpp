// SimGrid platform: nodes with ranks, latency and rate within a node and between nodes, and a limit on the rate at which a node
// sends, and on that at which it receives. A message between nodes also crosses the links within nodes, so their latency is subtracted from that of the wire.
#include <cstdlib>
#include <simgrid/s4u.hpp>
#include <string>

namespace sg = simgrid::s4u;

static double number(const char *name) {
  const char *text = std::getenv(name);
  return text == nullptr ? 0 : std::atof(text);
}

// One that its messages do not share.
static sg::LinkInRoute own(sg::NetZone *zone, const std::string &name, double rate, double latency) {
  sg::Link *link = zone->create_link(name, rate);
  link->set_latency(latency)->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)->seal();
  return sg::LinkInRoute(link);
}

extern "C" void load_platform(const sg::Engine &engine);
void load_platform(const sg::Engine &) {
  const int nodes = number("NODES"), per_node = number("PER_NODE");
  const double near = number("NEAR_LATENCY"), near_rate = number("NEAR_RATE");
  const double far = number("FAR_LATENCY"), far_rate = number("FAR_RATE"), limit = number("LIMIT");
  sg::NetZone *root = sg::create_star_zone("root");
  for (int n = 0; n < nodes; n++) {
    const std::string name = "node" + std::to_string(n);
    sg::NetZone *zone = sg::create_star_zone(name);
    zone->set_parent(root);
    for (int i = 0; i < per_node; i++) {
      const std::string rank = "host" + std::to_string(n * per_node + i);
      auto *point = zone->create_host(rank, 1e9)->get_netpoint();
      zone->add_route(point, nullptr, nullptr, nullptr, {own(zone, rank + "-up", near_rate, near / 2)}, false);
      zone->add_route(nullptr, point, nullptr, nullptr, {own(zone, rank + "-down", near_rate, near / 2)}, false);
    }
    auto *router = zone->create_router(name + "-router");
    zone->add_route(router, nullptr, nullptr, nullptr, {}, false);
    zone->add_route(nullptr, router, nullptr, nullptr, {}, false);
    zone->seal();
    const auto direction = [&](const std::string &which) {
      sg::Link *shared = root->create_link(name + which + "-limit", limit);
      shared->set_latency(0)->set_sharing_policy(sg::Link::SharingPolicy::SHARED)->seal();
      return std::vector<sg::LinkInRoute>{own(root, name + which, far_rate, (far - near) / 2), sg::LinkInRoute(shared)};
    };
    root->add_route(zone->get_netpoint(), nullptr, router, nullptr, direction("-out"), false);
    root->add_route(nullptr, zone->get_netpoint(), nullptr, router, direction("-in"), false);
  }
  root->seal();
}
