// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// modes are the modes of protection. In mode host, the service runs on the protecting host. In mode router, it runs behind that host.
var modes = []string{"host", "router"}

// servers are the addresses of the server in both modes, with the port of its protected service.
var servers = []netip.AddrPort{netip.MustParseAddrPort("10.9.0.2:80"), netip.MustParseAddrPort("[fd09::2]:80")}

// family returns the name of an address's family.
func family(a netip.AddrPort) string {
	if a.Addr().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// synScene has clients, the protecting host, and the server. Each is a separate host. Only in mode host, the protecting host is the server.
type synScene struct {
	*testing.T
	control.Instance
	ctx              context.Context
	lab              *lab.Lab
	mode             string
	target           plan.Target // "": the best target that the host supports
	protects, server *lab.Host
	clients          []*lab.Host
	ends             []*lab.Device // the clients' ends of their links
	port             string        // the service's port, as in a policy
	devices          []string      // the protecting host's devices on the clients' links
	bpf              string        // the BPF file system
	tagged           []string      // the devices whose clients are in a VLAN
	untags           []link.Link
}

// synInScene runs a test in a scene with the given number of clients and the given MTU.
func synInScene(t *testing.T, mode string, clients, mtu int, test func(*synScene)) {
	t.Helper()
	testutil.RequireRoot(t)
	s := &synScene{T: t, mode: mode, port: "tcp/80", bpf: testutil.MountBPF(t)}
	s.Instance = control.Instance{Dir: filepath.Join(s.bpf, "floodwall")}
	err := lab.Run(t.Context(), func(ctx context.Context, l *lab.Lab) error {
		s.ctx, s.lab = ctx, l
		if err := s.build(clients, mtu); err != nil {
			return err
		}
		defer s.unload()
		test(s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// build makes the hosts and connects them.
func (s *synScene) build(clients, mtu int) (err error) {
	if s.protects, err = s.lab.Host("protects"); err != nil {
		return err
	}
	for i := range clients {
		if err := s.addClient(i, mtu); err != nil {
			return err
		}
	}
	s.server = s.protects
	if s.mode == "host" {
		s.ip(s.server, "addr add 10.9.0.2/32 dev lo", "addr add fd09::2/128 dev lo nodad")
		return nil
	}
	if s.server, err = s.lab.Host("server"); err != nil {
		return err
	}
	_, _, err = s.lab.Connect(s.protects, s.server, lab.LinkOptions{
		A: lab.EndOptions{Addrs: lab.ParseAddrs("10.9.0.1/24 fd09::1/64")},
		B: lab.EndOptions{Addrs: lab.ParseAddrs("10.9.0.2/24 fd09::2/64")}, MTU: mtu,
	})
	if err != nil {
		return err
	}
	s.ip(s.server, "route add default via 10.9.0.1", "-6 route add default via fd09::1")
	return s.protects.Router()
}

// addClient makes client number i, with a link of its own to the protecting host.
func (s *synScene) addClient(i, mtu int) error {
	name := fmt.Sprintf("client%d", i)
	c, err := s.lab.Host(name)
	if err != nil {
		return err
	}
	end, _, err := s.lab.Connect(c, s.protects, lab.LinkOptions{
		A: lab.EndOptions{Addrs: lab.ParseAddrs(fmt.Sprintf("10.0.%d.1/24 fd00:%d::1/64", i, i))},
		B: lab.EndOptions{Addrs: lab.ParseAddrs(fmt.Sprintf("10.0.%d.2/24 fd00:%d::2/64", i, i))}, MTU: mtu,
	})
	if err != nil {
		return err
	}
	s.clients, s.devices, s.ends = append(s.clients, c), append(s.devices, name), append(s.ends, end)
	s.routes(i, "", "add")
	return s.hear(end)
}

// hear makes a client's device receive the frames that XDP sends at the other end. A veth without an XDP program drops such frames:
// https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c, veth_xdp_tx().
func (s *synScene) hear(end *lab.Device) error {
	const pass, frags = 2, 1 << 5 // XDP_PASS, BPF_F_XDP_HAS_FRAGS of linux/bpf.h
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL", Flags: frags, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer prog.Close()
	_, err = s.lab.Attach(end, prog)
	return err
}

// routes sets the routes of client number i to the server. The parameter more has further words for the command ip route.
func (s *synScene) routes(i int, more, how string) {
	s.ip(s.clients[i], fmt.Sprintf("route %s 10.9.0.2/32 via 10.0.%d.2 %s", how, i, more),
		fmt.Sprintf("-6 route %s fd09::2/128 via fd00:%d::2 %s", how, i, more))
}

// run runs a command on a host.
func (s *synScene) run(h *lab.Host, line string) {
	s.Helper()
	s.output(h, line)
}

// output runs a command on a host, and returns its output.
func (s *synScene) output(h *lab.Host, line string) string {
	s.Helper()
	words := strings.Fields(line)
	cmd := exec.CommandContext(s.ctx, words[0], words[1:]...)
	var out []byte
	if err := h.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err }); err != nil {
		s.Fatalf("host %s: %s: %v: %s", h.Name, line, err, out)
	}
	return string(out)
}

func (s *synScene) ip(h *lab.Host, lines ...string) {
	s.Helper()
	for _, line := range lines {
		s.run(h, "ip "+line)
	}
}

func (s *synScene) sysctl(h *lab.Host, name, value string) {
	s.Helper()
	if err := h.Sysctl(name, value); err != nil {
		s.Fatal(err)
	}
}

// source returns a policy that protects the server's port. The parameter syn has the keys of the protection. For "off", the policy only passes
// packets.
func (s *synScene) source(syn string) string {
	switch {
	case syn != "off" && s.mode == "router":
		syn = fmt.Sprintf("{mode: router, backends: [10.9.0.2, \"fd09::2\"], %s}", syn)
	case syn != "off":
		syn = fmt.Sprintf("{mode: host, %s}", syn)
	}
	return fmt.Sprintf("devices: [%s]\ndefault: pass\nservices:\n  - {name: web, port: %s, syn: %s}\n", strings.Join(s.devices, ", "), s.port, syn)
}

const always = "when: always"

// protect applies the policy of source with the text more at its end.
func (s *synScene) protect(syn, more string) *control.Applied {
	s.Helper()
	applied, err := s.tryProtect(syn, more, 0)
	if err != nil {
		s.Fatalf("apply of %s: %v", syn, err)
	}
	return applied
}

// tryProtect is like protect, but returns an error. If trial is not 0, the policy is on trial for this time.
func (s *synScene) tryProtect(syn, more string, trial time.Duration) (applied *control.Applied, err error) {
	err = s.protects.Do(func() error {
		p, err := policy.Parse("policy.yaml", []byte(s.source(syn)+more))
		if err == nil {
			applied, err = s.Apply(s.ctx, p, control.ApplyOptions{Target: s.target, Confirm: trial})
		}
		return err
	})
	return applied, err
}

func (s *synScene) unload() {
	s.Helper()
	err := s.protects.Do(func() error { return s.Unload(context.Background()) })
	if err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
		s.Error(err)
	}
}

// status returns the status of the protection, and the counts of its outcomes.
func (s *synScene) status() (p control.ProtectionStatus, counts map[string]uint64) {
	s.Helper()
	counts = map[string]uint64{}
	err := s.protects.Do(func() error {
		status, err := s.Status(s.ctx)
		if err != nil {
			return err
		}
		for _, r := range status.Rules {
			counts[strings.TrimPrefix(r.Name, "web:")] = r.Packets
		}
		if len(status.Protections) == 1 {
			p = status.Protections[0]
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return p, counts
}

// listen opens a listener on the server without MPTCP, as most servers do. Go would use MPTCP by default.
func (s *synScene) listen(address string) net.Listener {
	s.Helper()
	var l net.Listener
	err := s.server.Do(func() (err error) {
		var c net.ListenConfig
		c.SetMultipathTCP(false)
		l, err = c.Listen(s.ctx, "tcp", address)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { l.Close() })
	return l
}

// dial connects a client.
func (s *synScene) dial(from *lab.Host, to netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, synPatience)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(synPatience))
}

// synPatience is the longest time that a client waits. It is several times the time after which TCP sends a lost segment again.
const synPatience = 30 * time.Second

// page is the content of the file that nginx serves. pageName is the name of the file.
var page = pattern(100_000, 1)

const pageName = "page"

// smallName is the name of a file of a few bytes.
const smallName = "small"

// nginx starts nginx on the server.
func (s *synScene) nginx() {
	s.Helper()
	testutil.RequireTool(s, "nginx")
	dir := s.TempDir()
	conf := fmt.Sprintf(nginxConf, dir)
	for name, text := range map[string][]byte{"conf": []byte(conf), pageName: page, smallName: []byte("small\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			s.Fatal(err)
		}
	}
	cmd := exec.Command("nginx", "-c", filepath.Join(dir, "conf"), "-p", dir, "-e", "stderr")
	cmd.Stderr = os.Stderr
	if err := s.server.Do(cmd.Start); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for end := time.Now().Add(synPatience); ; time.Sleep(10 * time.Millisecond) {
		c, err := s.server.Dial(s.ctx, "tcp", servers[0])
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			s.Fatalf("nginx takes no connections: %v", err)
		}
	}
}

// nginxConf makes nginx a single process that writes only in its directory.
const nginxConf = `daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr crit;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen 80;
		listen [::]:80;
		root %[1]s;
	}
}
`

// getPage requests the page from nginx, over a connection that stays open.
func getPage(c net.Conn) error {
	if _, err := io.WriteString(c, "GET /"+pageName+" HTTP/1.1\r\nHost: server\r\n\r\n"); err != nil {
		return err
	}
	return readPage(c)
}
