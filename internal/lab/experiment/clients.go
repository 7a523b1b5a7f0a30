package experiment

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// The clients: each has an address in a /24 of its own, since that is how the world's clients come.
const (
	clientCount = 250
	clientRate  = 2000 // queries per second, of all
	dnsTimeout  = 2 * time.Second
	outstanding = 16_384
)

// clientRules give queries of the clients' host the addresses of all clients in turn, and answers to them its own: one
// dnsperf has but one address. They keep no state.
func clientRules() string {
	var addresses strings.Builder
	for i := range clientCount {
		fmt.Fprintf(&addresses, "%d : 40.0.%d.1, ", i, i)
	}
	return fmt.Sprintf(`table ip clients {
chain output {
type filter hook output priority raw;
udp dport %[1]d ip saddr set numgen inc mod %[2]d map { %[3]s }
}
chain prerouting {
type filter hook prerouting priority raw;
ip daddr %[4]s ip daddr set %[5]s
}
}
`, resolverAt.Port(), clientCount, addresses.String(), rig.ClientNetwork, rig.ClientsAddr)
}

// answers is what the clients got.
type answers struct {
	sent    uint64
	latency []time.Duration // of the answers, in order of their length
}

// clients is a dnsperf that asks.
type clients struct {
	*rig.Process
	out *os.File
}

// startClients has the clients ask for some time, in whole seconds.
func startClients(h *lab.Host, queries string, duration time.Duration) (c *clients, err error) {
	c = &clients{}
	if c.out, err = os.CreateTemp("", "floodwall-bench-"); err != nil {
		return nil, err
	}
	os.Remove(c.out.Name()) // the file lives until it is closed
	c.Process, err = rig.StartProcess(h, &rig.Place{CPU: rig.SourceCPU, Priority: lab.MoreUrgent}, c.out, "dnsperf", "-v", "-s", resolverAt.Addr().String(),
		"-d", queries, "-l", strconv.Itoa(wholeSeconds(duration)), "-t", fmt.Sprint(clientTimeout(duration).Seconds()),
		"-Q", strconv.Itoa(clientRate), "-c", "20", "-q", strconv.Itoa(outstanding))
	if err != nil {
		c.out.Close()
		return nil, err
	}
	return c, nil
}

// answers waits for the end of the clients, and returns what they got.
func (c *clients) answers(ctx context.Context) (a answers, err error) {
	defer c.close()
	select {
	case <-ctx.Done():
		return a, ctx.Err()
	case <-c.Ended:
	}
	if c.Err != nil {
		return a, &rig.Missing{Reason: fmt.Sprintf("dnsperf: %v: %s", c.Err, c.Complaint())}
	}
	if _, err := c.out.Seek(0, io.SeekStart); err != nil {
		return a, err
	}
	text, err := io.ReadAll(c.out)
	if err != nil {
		return a, err
	}
	return parseAnswers(string(text))
}

// close kills the clients.
func (c *clients) close() {
	c.Kill()
	c.out.Close()
}

// clientTimeout is how long clients wait for an answer: not long, when they do not ask for long.
func clientTimeout(duration time.Duration) time.Duration { return min(dnsTimeout, duration/2) }

// wholeSeconds is a time as dnsperf takes it.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Round(d.Seconds()))) }

// parseAnswers reads what dnsperf -v says: a line for each answer with its code, name, type and seconds, and how many
// queries it sent.
func parseAnswers(text string) (a answers, err error) {
	for line := range strings.Lines(text) {
		if answer, ok := strings.CutPrefix(line, "> NOERROR "); ok {
			f := strings.Fields(answer)
			seconds, err := strconv.ParseFloat(f[len(f)-1], 64)
			if err != nil {
				return a, fmt.Errorf("dnsperf: line %q: %w", line, err)
			}
			a.latency = append(a.latency, time.Duration(seconds*float64(time.Second)))
		}
		if sent, ok := strings.CutPrefix(strings.TrimSpace(line), "Queries sent:"); ok {
			if a.sent, err = strconv.ParseUint(strings.TrimSpace(sent), 10, 64); err != nil {
				return a, fmt.Errorf("dnsperf: line %q: %w", line, err)
			}
		}
	}
	slices.Sort(a.latency)
	return a, nil
}

// percentile is the latency that this share of the answers did not exceed; 0 when there are none.
func (a *answers) percentile(share float64) time.Duration {
	if len(a.latency) == 0 {
		return 0
	}
	return a.latency[min(len(a.latency)-1, int(share*float64(len(a.latency))))]
}

// queriesText is what dnsperf asks for.
func queriesText() string {
	var b strings.Builder
	for i := range dnsNames {
		fmt.Fprintf(&b, "h%d.%s A\n", i, zoneName)
	}
	return b.String()
}

// arrivals counts what arrives at the clients' device.
type arrivals struct {
	others, othersBytes uint64 // to addresses that are not the clients': bytes of frames
	truncated           uint64 // answers to clients
}

// loadVictim loads the program that counts what arrives at the clients' device.
func loadVictim() (rig.LoadedPeer, error) {
	network := rig.ClientNetwork.Addr().As4()
	mask := rig.Addr4(^uint32(0) << (32 - rig.ClientNetwork.Bits())).As4()
	return rig.LoadPeer(rig.Victim, nil, map[string]any{
		rig.VictimClients: binary.NativeEndian.Uint32(network[:]), rig.VictimMask: binary.NativeEndian.Uint32(mask[:]),
	})
}

// readArrivals reads its counters.
func readArrivals(p rig.LoadedPeer) (a arrivals, err error) {
	read := func(what uint32) (sum [2]uint64) {
		var perCPU [][2]uint64
		if e := p.Counts.Lookup(what, &perCPU); e != nil {
			err = fmt.Errorf("counters: %w", e)
		}
		for _, c := range perCPU {
			sum[0] += c[0]
			sum[1] += c[1]
		}
		return sum
	}
	others, cut := read(0), read(2)
	return arrivals{others[0], others[1], cut[0]}, err
}
