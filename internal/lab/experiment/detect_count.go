package experiment

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
	"github.com/floodwall/floodwall/internal/lab/traffic"
)

// classCounter counts packets of each class on both sides of the firewall: those that real sockets of the clients' host send, and those that came
// past XDP on the server's wire of honest clients. What this process sends itself goes past the former, and is counted where it is sent.
type classCounter struct {
	site    *detectSite
	classes []traffic.Class
}

// newClassCounter starts to count. A packet counts for the first class that has it.
func newClassCounter(ctx context.Context, s *detectSite, classes []traffic.Class) (*classCounter, error) {
	c := &classCounter{s, classes}
	for host, rules := range map[*lab.Host]string{
		s.clients.Host: c.rules("type filter hook output priority 0;") + answersRules,
		s.server:       c.rules(fmt.Sprintf("type filter hook prerouting priority -400; iifname != %q accept", honestWire)),
	} {
		if _, _, err := rig.RunTool(ctx, host, strings.NewReader(rules), "nft", "-f", "-"); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// answersRules count what the server answers over UDP, and drop it: clients over UDP have no sockets, and their host would complain to the server.
const answersRules = `table ip answers {
	counter answers { }
	chain come { type filter hook prerouting priority 0; ip protocol udp counter name answers drop; }
}
`

// rules are those of a host.
func (c *classCounter) rules(hook string) string {
	var counters, rules strings.Builder
	for i, class := range c.classes {
		proto := map[lab.Proto]string{lab.UDP: "udp", lab.TCP: "tcp"}[class.Proto]
		test := "ip protocol " + proto
		if class.Port > 0 {
			test = fmt.Sprintf("%s dport %d", proto, class.Port)
		}
		fmt.Fprintf(&counters, "\tcounter c%d { }\n", i)
		fmt.Fprintf(&rules, "\t\tip saddr %s %s counter name c%d accept\n", class.From, test, i)
	}
	return fmt.Sprintf("table ip lab {\n%s\tchain classes {\n\t\t%s\n%s\t}\n}\n", counters.String(), hook, rules.String())
}

// classCounts are the packets of each class by name.
type classCounts struct {
	sent, passed map[string]uint64
	answers      uint64 // over UDP
}

// read reads what was counted: what was sent before what passed, so that nothing that is under way counts as lost.
func (c *classCounter) read(ctx context.Context) (n classCounts, err error) {
	if n.sent, n.answers, err = c.readAt(ctx, c.site.clients.Host); err == nil {
		n.passed, _, err = c.readAt(ctx, c.site.server)
	}
	return n, err
}

func (c *classCounter) readAt(ctx context.Context, h *lab.Host) (counts map[string]uint64, answers uint64, err error) {
	text, _, err := rig.RunTool(ctx, h, nil, "nft", "-j", "list", "counters")
	if err != nil {
		return nil, 0, err
	}
	var list struct {
		All []struct {
			Counter struct {
				Name    string `json:"name"`
				Packets uint64 `json:"packets"`
			} `json:"counter"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, 0, fmt.Errorf("counters of nft: %w", err)
	}
	counts = map[string]uint64{}
	for _, item := range list.All {
		var i int
		if _, err := fmt.Sscanf(item.Counter.Name, "c%d", &i); err == nil && i < len(c.classes) {
			counts[c.classes[i].Name] += item.Counter.Packets // several classes may have a name
		}
		if item.Counter.Name == "answers" {
			answers = item.Counter.Packets
		}
	}
	return counts, answers, nil
}
