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

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/bgp/wire"
)

// nobody is a user without rights, for `floodwall-bgp run`.
const nobody = 65534

// upstream is added to the policies of the node that announces, and of the router that obeys. Both have a session with a route reflector
// (RFC 4456), as routers of one network have: `floodwall-bgp run` takes no connections.
const upstream = `upstream:
  as: 64500
  router_id: %s
  announce: [192.0.2.8/29]
  live: true
  peers: [{address: %s, as: 64500, families: [ipv4-flowspec]}]
`

// RouterPolicy is what the router runs, on the device to the attackers.
const RouterPolicy = `devices: [attackers]
default: pass
never: [192.0.2.0/24]
`

// receives is added to the router's upstream.
const receives = "  receive: {max: 8}\n"

// reflectorConfig is for BIRD, as the route reflector of the node and the router.
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

// haveBIRD says at the beginning that the route reflector's program is missing.
func haveBIRD() error {
	if _, err := exec.LookPath("bird"); err != nil {
		return &FleetTrouble{"the demonstration needs BIRD 2 as its route reflector, and there is no command bird", "install it: apt-get install bird2"}
	}
	return nil
}

// beginUpstream starts the route reflector, the router's Floodwall, and the BGP of both sides.
func (s *site) beginUpstream(ctx context.Context) error {
	config := filepath.Join(fleetStateDir, "bird.conf")
	text := fmt.Sprintf(reflectorConfig, s.reflector.address, s.nodes[0].address, s.router.address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	bird := exec.CommandContext(context.Background(), "bird", "-f", "-c", config, "-s", filepath.Join(fleetStateDir, "bird.ctl"), "-P", filepath.Join(fleetStateDir, "bird.pid"))
	bird.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setsid: true}
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

// speak starts `floodwall-bgp run` of a host, as a user without rights. The user is set before the program begins: a process
// that becomes another user does not end with its parent any more (prctl(2), PR_SET_PDEATHSIG).
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
	c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	return s.goOn(ctx, &n.host, shown(&n.host, args), "", c)
}

// awaitSession waits until a host and the route reflector exchange routes.
func (s *site) awaitSession(ctx context.Context, n *node) error {
	client := wire.NewClient(wire.Dir(n.instance.Dir, ""))
	return s.until(ctx, "the BGP session of "+n.name, func() (bool, error) {
		st, err := client.Status(ctx)
		return err == nil && len(st.Sessions) == 1 && st.Sessions[0].State == wire.Established, nil
	})
}

// flowSpec reports whether a host has a rule for a received route, and how many packets such rules have dropped.
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
