// SPDX-License-Identifier: Apache-2.0

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

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// The clients. Each has an address in a /24 of its own, like clients on the Internet.
const (
	clientCount = 250
	clientRate  = 2000 // queries per second of all clients together
	dnsTimeout  = 2 * time.Second
	outstanding = 16_384
)

// clientRules returns an nft ruleset that spreads the queries over the addresses of all clients in turn. It also changes the destination of the
// answers back to the address of the clients' host. This is needed because one dnsperf has only one address. The rules keep no state.
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

// clients is a dnsperf process that sends queries.
type clients struct {
	*lab.Process
	out *os.File
}

// startClients makes the clients send queries for a duration, which is rounded to whole seconds.
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

// answers waits until the clients end. It returns the number of queries that they sent, and the latencies of the answers in ascending order.
func (c *clients) answers(ctx context.Context) (sent uint64, latency []time.Duration, err error) {
	defer c.close()
	select {
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	case <-c.Ended:
	}
	if c.Err != nil {
		return 0, nil, &rig.Missing{Reason: fmt.Sprintf("dnsperf: %v: %s", c.Err, c.Complaint())}
	}
	if _, err := c.out.Seek(0, io.SeekStart); err != nil {
		return 0, nil, err
	}
	text, err := io.ReadAll(c.out)
	if err != nil {
		return 0, nil, err
	}
	return parseAnswers(string(text))
}

// close kills the clients.
func (c *clients) close() {
	c.Kill()
	c.out.Close()
}

// clientTimeout returns the time for which clients wait for an answer. It is shorter if the clients send queries only for a short time.
func clientTimeout(duration time.Duration) time.Duration { return min(dnsTimeout, duration/2) }

// wholeSeconds returns a time in the format that dnsperf accepts.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Round(d.Seconds()))) }

// parseAnswers parses the output of dnsperf -v. The output has a line for each answer with the code, name, type and seconds. It also has the number
// of sent queries.
func parseAnswers(text string) (sent uint64, latency []time.Duration, err error) {
	for line := range strings.Lines(text) {
		if answer, ok := strings.CutPrefix(line, "> NOERROR "); ok {
			f := strings.Fields(answer)
			seconds, err := strconv.ParseFloat(f[len(f)-1], 64)
			if err != nil {
				return 0, nil, fmt.Errorf("dnsperf: line %q: %w", line, err)
			}
			latency = append(latency, time.Duration(seconds*float64(time.Second)))
		}
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "Queries sent:"); ok {
			if sent, err = strconv.ParseUint(strings.TrimSpace(text), 10, 64); err != nil {
				return 0, nil, fmt.Errorf("dnsperf: line %q: %w", line, err)
			}
		}
	}
	slices.Sort(latency)
	return sent, latency, nil
}

// queriesText returns the queries for dnsperf.
func queriesText() string {
	var b strings.Builder
	for i := range dnsNames {
		fmt.Fprintf(&b, "h%d.%s A\n", i, zoneName)
	}
	return b.String()
}

// arrivals has counters of packets that arrived: at the clients' device, and from the attacker at the resolver's host.
type arrivals struct {
	othersBytes uint64 // bytes of frames to addresses that are not those of clients
	truncated   uint64 // number of truncated answers to clients
	received    uint64 // number of frames from the attacker
}

func (a arrivals) since(before arrivals) arrivals {
	return arrivals{a.othersBytes - before.othersBytes, a.truncated - before.truncated, a.received - before.received}
}

// loadVictim loads the program that counts packets that arrive at the clients' device.
func loadVictim() (rig.LoadedPeer, error) {
	network := rig.ClientNetwork.Addr().As4()
	mask := rig.Addr4(^uint32(0) << (32 - rig.ClientNetwork.Bits())).As4()
	return rig.LoadPeer(rig.Victim, nil, map[string]any{
		rig.VictimClients: binary.NativeEndian.Uint32(network[:]), rig.VictimMask: binary.NativeEndian.Uint32(mask[:]),
	})
}

// readArrivals reads the counters of the program of loadVictim.
func readArrivals(p rig.LoadedPeer) (a arrivals, err error) {
	if _, a.othersBytes, err = p.Count(0); err == nil {
		a.truncated, _, err = p.Count(2)
	}
	return a, err
}
