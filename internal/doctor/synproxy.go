package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/datapath"
)

// synproxyOptions compares the options with which connections to protected services behind this host are begun with those
// that their servers have now.
func synproxyOptions(ctx context.Context, h *host) []Finding {
	const id = "synproxy-options"
	list, err := h.instance.Mismatches(ctx)
	if err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
		return []Finding{unseen(id, err)}
	}
	if len(list) == 0 {
		return []Finding{{ID: id, Severity: OK, Evidence: "no server behind this host announces other options than SYNPROXY does for it"}}
	}
	var found []Finding
	for _, m := range list {
		found = append(found, judgeMismatch(id, m))
	}
	return found
}

func judgeMismatch(id string, m control.Mismatch) Finding {
	var servers []string
	for _, s := range m.Servers {
		servers = append(servers, s.String())
	}
	f := Finding{
		ID: id, Severity: Note,
		Evidence: fmt.Sprintf("service %q: %s (asked by a connection to %s)", m.Service, strings.Join(m.Differs, "; "), strings.Join(servers, ", ")),
		Cost:     "connections do not use all that their servers can",
	}
	if m.Broken {
		f.Severity = Warning
		f.Cost = "clients use an option that the server knows nothing of: segments that are too large are lost, and windows are taken for others than they are"
	}
	return f.command("floodwall apply policy.yaml")
}
