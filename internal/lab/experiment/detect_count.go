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
	for host, hook := range map[*lab.Host]string{
		s.clients.Host: "type filter hook output priority 0;", s.server: fmt.Sprintf("type filter hook prerouting priority -400; iifname != %q accept", honestWire),
	} {
		if _, _, err := rig.RunTool(ctx, host, strings.NewReader(c.rules(hook)), "nft", "-f", "-"); err != nil {
			return nil, err
		}
	}
	return c, nil
}

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
type classCounts struct{ sent, passed map[string]uint64 }

// read reads what was counted: what was sent before what passed, so that nothing that is under way counts as lost.
func (c *classCounter) read(ctx context.Context) (n classCounts, err error) {
	if n.sent, err = c.readAt(ctx, c.site.clients.Host); err == nil {
		n.passed, err = c.readAt(ctx, c.site.server)
	}
	return n, err
}

func (c *classCounter) readAt(ctx context.Context, h *lab.Host) (map[string]uint64, error) {
	text, _, err := rig.RunTool(ctx, h, nil, "nft", "-j", "list", "counters")
	if err != nil {
		return nil, err
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
		return nil, fmt.Errorf("counters of nft: %w", err)
	}
	counts := map[string]uint64{}
	for _, item := range list.All {
		var i int
		if _, err := fmt.Sscanf(item.Counter.Name, "c%d", &i); err == nil && i < len(c.classes) {
			counts[c.classes[i].Name] += item.Counter.Packets // several classes may have a name
		}
	}
	return counts, nil
}
