// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/floodwall/floodwall/internal/bgp/wire"
)

// nobody is the user without rights that runs `floodwall-bgp run`.
const nobody = 65534

// upstream is the part of the policy with the BGP settings, for the announcing node and for the router. Both have a session with a route reflector
// (RFC 4456), like the routers of a network, because `floodwall-bgp run` accepts no connections.
const upstream = `upstream:
  as: 64500
  router_id: %s
  announce: [192.0.2.8/29]
  live: true
  peers: [{address: %s, as: 64500, families: [ipv4-flowspec]}]
`

// RouterPolicy is the policy of the router. It applies to the device that leads to the attackers.
const RouterPolicy = `devices: [attackers]
default: pass
never: [192.0.2.0/24]
`

// receives is a further line for the router's upstream.
const receives = "  receive: {max: 8}\n"

// reflectorConfig is the configuration of BIRD, the route reflector of the node and the router.
const reflectorConfig = `log stderr all;
router id %[1]s;
protocol device {}
flow4 table flowtab4;
template bgp reflected {
  local %[1]s as 64500;
  multihop; passive on; rr client;
  flow4 { table flowtab4; import all; export all; };
}
protocol bgp web1 from reflected { neighbor %[2]s as 64500; }
protocol bgp edge from reflected { neighbor %[3]s as 64500; }
`

func upstreamOf(a netip.Addr) string { return fmt.Sprintf(upstream, a, reflectorAddress.Addr()) }

// haveBIRD returns an error if BIRD, the program of the route reflector, is missing.
func haveBIRD() error {
	if _, err := exec.LookPath("bird"); err != nil {
		return &FleetTrouble{"the demonstration needs BIRD 2 as its route reflector, and there is no command bird", "install it: apt-get install bird2"}
	}
	return nil
}

// beginUpstream starts the route reflector, Floodwall on the router, and BGP on both sides.
func (s *site) beginUpstream(ctx context.Context) error {
	config := filepath.Join(fleetStateDir, "bird.conf")
	text := fmt.Sprintf(reflectorConfig, s.reflector.address, s.nodes[0].address, s.router.address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	bird := exec.CommandContext(context.Background(), "bird", "-f", "-c", config, "-s", filepath.Join(fleetStateDir, "bird.ctl"), "-P", filepath.Join(fleetStateDir, "bird.pid"))
	if err := s.goOn(ctx, &s.reflector, s.reflector.name+"$ bird -c bird.conf", "Started", bird); err != nil {
		return err
	}
	policy := filepath.Join(fleetStateDir, "router.yaml")
	if err := os.WriteFile(policy, []byte(RouterPolicy+upstreamOf(s.router.address)+receives), 0o600); err != nil {
		return err
	}
	if _, err := s.run(ctx, &s.router.host, append([]string{"floodwall", "apply", policy}, s.router.flags()...)...); err != nil {
		return err
	}
	for _, n := range []*node{s.router, s.nodes[0]} {
		if err := s.speak(ctx, n); err != nil {
			return err
		}
	}
	if err := s.serve(ctx, &s.router.host, "", append([]string{"floodwall", "daemon"}, s.router.flags()...)...); err != nil {
		return err
	}
	for _, n := range []*node{s.router, s.nodes[0]} {
		if err := s.awaitSession(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// speak starts `floodwall-bgp run` on a host, as a user without rights. The user is set before the program starts. If the process changed its user
// itself, it would no longer end with its parent (prctl(2), PR_SET_PDEATHSIG).
func (s *site) speak(ctx context.Context, n *node) error {
	run, state := wire.Dir(n.instance.Dir, ""), "/run/bgp-"+n.name
	for _, dir := range []string{run, state} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			return err
		}
	}
	args := []string{"floodwall-bgp", "run", "--dir", state, "--bpffs", n.instance.Dir}
	c := s.command(context.Background(), args)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return s.goOn(ctx, &n.host, shown(&n.host, args), "", c)
}

// awaitSession waits until the BGP session between a host and the route reflector is established.
func (s *site) awaitSession(ctx context.Context, n *node) error {
	client := wire.NewClient(wire.Dir(n.instance.Dir, ""))
	return s.until(ctx, "the BGP session of "+n.name, func() (bool, error) {
		st, err := client.Status(ctx)
		return err == nil && len(st.Sessions) == 1 && st.Sessions[0].State == wire.Established, nil
	})
}

// flowSpec reports whether a host has a rule for a received route. It also returns the number of packets that such rules have dropped.
func (n *node) flowSpec(ctx context.Context) (rule bool, drops uint64, err error) {
	err = n.lab.Do(func() error {
		st, err := n.instance.Status(ctx)
		if err != nil {
			return err
		}
		for _, r := range st.Rules {
			if r.Temporary != nil && strings.HasPrefix(r.Temporary.Owner, "flowspec") {
				rule, drops = true, drops+r.Packets
			}
		}
		return nil
	})
	return rule, drops, err
}
