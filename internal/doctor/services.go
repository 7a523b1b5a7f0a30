// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// manyEntries is the number of entries from which a change for a share of them is worthwhile.
const manyEntries = 1000

// census counts the entries of the connection tracking table by service.
type census struct {
	sampled  int
	loopback int
	services map[sockets.Service]int // entries of each service of this host
}

// conntrackServices finds the services of this host with the most entries in the table. `track: false` would remove these entries.
func conntrackServices(ctx context.Context, h *host) []Finding {
	const id = "conntrack-services"
	t, err := readTracked(h)
	switch {
	case errors.Is(err, errNoConntrack):
		return nil
	case err != nil:
		return []Finding{unseen(id, err)}
	case t.count == 0:
		return []Finding{{ID: id, Severity: OK, Evidence: "no connection is tracked"}}
	}
	flows, err := sampleFlows(ctx)
	if err != nil && len(flows) == 0 {
		return []Finding{unseen(id, err)}
	}
	serve, err := sockets.Serving()
	if err != nil {
		return []Finding{unseen(id, err)}
	}
	own, err := sockets.OwnAddresses()
	if err != nil {
		return []Finding{unseen(id, err)}
	}
	here := map[sockets.Service]bool{}
	for _, l := range serve {
		here[l.Service] = true
	}
	c := census{sampled: len(flows), services: map[sockets.Service]int{}}
	for _, f := range flows {
		s := sockets.Service{Proto: f.proto, Port: f.port}
		switch {
		case f.dst.IsLoopback() || f.src == f.dst:
			c.loopback++
		case slices.Contains(own, f.dst) && here[s]:
			c.services[s]++
		}
	}
	return []Finding{c.judge(t)}
}

// largest lists the services with at least a twentieth of the sample, the largest first.
func (c census) largest() []sockets.Service {
	list := slices.Collect(maps.Keys(c.services))
	list = slices.DeleteFunc(list, func(s sockets.Service) bool { return c.services[s]*20 < c.sampled })
	slices.SortFunc(list, func(a, b sockets.Service) int {
		return cmp.Or(c.services[b]-c.services[a], int(a.Port)-int(b.Port), int(a.Proto)-int(b.Proto))
	})
	return list
}

func (c census) judge(t tracked) Finding {
	var words []string
	saved := c.loopback
	for _, s := range c.largest() {
		saved += c.services[s]
		words = append(words, fmt.Sprintf("%s %d%%", s, percent(uint64(c.services[s]), uint64(c.sampled))))
	}
	if c.loopback*20 >= c.sampled {
		words = append(words, fmt.Sprintf("loopback %d%%", percent(uint64(c.loopback), uint64(c.sampled))))
	}
	share := percent(uint64(saved), uint64(c.sampled))
	f := Finding{
		ID: "conntrack-services", Severity: Note,
		Evidence: fmt.Sprintf("of %s entries looked at: %s (from the kernel's table and its listening sockets)",
			wording.Count(uint64(c.sampled)), cmp.Or(strings.Join(words, ", "), "no service of this host has 5%")),
		Numbers: map[string]uint64{"sampled": uint64(c.sampled), "saved_percent": share},
		Cost: fmt.Sprintf("%d%% of the table, about %s entries, and %s; `track: false` saves both where no rule of another "+
			"firewall asks for the state of these connections", share, wording.Count(t.count*share/100), trackingCost),
	}
	if share < 25 || t.count < manyEntries {
		return f.healthy()
	}
	if percent(t.count, t.max) >= 50 {
		f.Severity = Warning
	}
	return f.policy(c.policy()...)
}

// policy returns lines of a policy that exempt the largest services from tracking.
func (c census) policy() (lines []string) {
	if largest := c.largest(); len(largest) > 0 {
		lines = append(lines, "services:")
		for _, s := range largest {
			lines = append(lines, fmt.Sprintf("  - {name: %s, port: %s, track: false}", s.Name(), s))
		}
	}
	if c.loopback*20 >= c.sampled {
		lines = append(lines, "untracked: [loopback]")
	}
	return lines
}
