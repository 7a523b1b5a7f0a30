package operate

import (
	"context"

	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/daemonlock"
	"github.com/floodwall/floodwall/internal/statedir"
)

// StateDir is the state directory of an instance, by its directory in the BPF file system: that which is recorded for what runs, or else that of
// its daemon. It is "" when neither says one that there is, as before the first apply.
func StateDir(ctx context.Context, bpffs string) string {
	if m, err := (control.Instance{Dir: bpffs}).Manifest(ctx); err == nil && statedir.Exists(m.State) {
		return m.State
	}
	if used := daemonlock.Of(bpffs).State(); statedir.Exists(used) {
		return used
	}
	return ""
}
