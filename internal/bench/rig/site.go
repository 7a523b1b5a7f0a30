package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/lab"
)

// Where things run. The receive thread goes before all else on its CPU.
const (
	sourceCPU   = 0
	receiverCPU = 1
)

// The server's addresses, to which all traffic goes.
var (
	server4 = netip.MustParseAddr("10.0.0.2")
	server6 = netip.MustParseAddr("fd00::2")
)

// site is a server host with a link from an attacker of its own. What is installed in the server's namespace stays
// there for the whole run; an XDP program is attached only while it is measured, because the kernel calls all programs
// that are attached anywhere through one dispatcher, which costs the more the more there are.
type site struct {
	lab    *lab.Lab
	server *lab.Host
	out    *lab.Device   // of the attacker
	in     *lab.Device   // of the server
	more   []*lab.Device // of the server, which its policy is for as well
}

// devices is the line of a policy that names the server's devices.
func (s *site) devices() string {
	names := []string{s.in.Name}
	for _, d := range s.more {
		names = append(names, d.Name)
	}
	return fmt.Sprintf("devices: [%s]\n", strings.Join(names, ", "))
}

// newSite builds the n-th site of a lab, to flood.
func newSite(l *lab.Lab, n int) (*site, error) {
	return connectSite(l, n, lab.EndOptions{}, lab.EndOptions{CPU: lab.OnCPU(receiverCPU), Urgent: true})
}

// connectSite builds the n-th site of a lab. The attacker's and the server's end receive as out and in say.
func connectSite(l *lab.Lab, n int, out, in lab.EndOptions) (*site, error) {
	attacker, err := l.Host(fmt.Sprintf("attacker%d", n))
	if err != nil {
		return nil, err
	}
	s := &site{lab: l}
	if s.server, err = l.Host(fmt.Sprintf("server%d", n)); err != nil {
		return nil, err
	}
	out.Addrs, in.Addrs = lab.ParseAddrs("10.0.0.1/24 fd00::1/64"), lab.ParseAddrs("10.0.0.2/24 fd00::2/64")
	s.out, s.in, err = l.Connect(attacker, s.server, lab.LinkOptions{A: out, B: in})
	if err != nil {
		return nil, err
	}
	// Random sources have no route back, and a rule in the filter table must see them all the same.
	if err := s.believe("all"); err != nil {
		return nil, err
	}
	return s, s.believe(s.in.Name)
}

// believe has the server take packets of a device whatever their source.
func (s *site) believe(device string) error {
	return s.server.Sysctl("ipv4/conf/"+device+"/rp_filter", "0")
}

// subject is what a row measures: what is installed at a site, or a program to attach there.
type subject struct {
	site    *site
	program *ebpf.Program // nil: nothing to attach
}

// offer is what a source sends: packets per second, or as many as it can for 0, from a CPU.
type offer struct {
	pps float64
	cpu int
}

// measure floods the subject once.
func (s subject) measure(ctx context.Context, flows []lab.Flow, o offer, seed uint64, window time.Duration) (m lab.Measurement, err error) {
	if s.program != nil {
		attached, err := s.site.lab.Attach(s.site.in, s.program)
		if err != nil {
			return m, err
		}
		defer attached.Close()
	}
	source, err := s.site.lab.NewSource(s.site.out, lab.SourceOptions{
		Flows: flows, CPU: o.cpu, Seed: seed, Rate: o.pps, Urgent: true,
	})
	if err != nil {
		return m, err
	}
	m, err = lab.Measure(ctx, source, s.site.in, window)
	return m, errors.Join(err, source.Close())
}

// flood is UDP packets of the least size from any of these sources to the server.
func flood(from []netip.Addr) lab.Flow {
	to := server4
	if from[0].Is6() {
		to = server6
	}
	return lab.Flow{From: lab.Listed(from), To: lab.Addr(to), SPort: lab.AnyPort, DPort: lab.Port(53)}
}

// floodPacket is a packet of the flood, in the notation of package packet.
func floodPacket(from fmt.Stringer) string {
	if text := from.String(); strings.Contains(text, ":") {
		return fmt.Sprintf("udp [%s]:4000 > [%s]:53", text, server6)
	}
	return fmt.Sprintf("udp %s:4000 > %s:53", from, server4)
}

// floodCatchUp keeps the attacker's rate even: one that makes up for a moment without CPU at full speed overruns the queue
// of the resolver's device, which a flood of its rate does not.
const floodCatchUp = 2

// sinkPort is where all packets go.
const sinkPort = 53

// tested is how many packets tell what becomes of all.
const tested = 10
