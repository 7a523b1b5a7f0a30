package control

import (
	"context"
	"fmt"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/packet"
)

// askNetfilter is the answer of the parts in netfilter, to a packet that came past XDP with an answer so far.
func (l *live) askNetfilter(_ context.Context, g *generation, spec packet.Spec, e Explanation) (Explanation, error) {
	return e, &SetError{
		fmt.Sprintf("%s is decided at stage %s, in netfilter, which cannot be asked without a packet", spec, g.manifest.At.Stage),
		fmt.Sprintf("`floodwall explain %s` says what the policy means for it", g.manifest.File),
	}
}

var _ = compile.StageRaw
