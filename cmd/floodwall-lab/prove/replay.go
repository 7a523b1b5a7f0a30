// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Replay runs each found frame in the kernel (BPF_PROG_TEST_RUN) and in Eval, with empty sets and no flood. If the two results differ, the difference
// is real. Otherwise the difference needs the state that the model names, or the model has a mistake.
func (r *Report) Replay(p *ir.Program) {
	for i := range r.Parts {
		if part := &r.Parts[i]; part.Answer == smt.Satisfiable && part.Frame != nil {
			part.Replayed = replayed(p, part.Frame)
		}
	}
}

func replayed(p *ir.Program, frame []byte) string {
	x, err := xdp.Generate(p, xdp.Options{QuestionKey: questionKey})
	if err != nil {
		return err.Error()
	}
	l, err := datapath.Load(&x.Image, nil)
	if err != nil {
		return err.Error()
	}
	defer l.Close()
	action, err := l.Native().Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Repeat: 1})
	if err != nil {
		return err.Error()
	}
	pkt := packet.Decode(frame)
	verdict, reason := p.Eval(&pkt, ir.World{})
	want := map[ir.Verdict]uint32{ir.Pass: 2, ir.Drop: 1}[verdict]
	what := "the same: the difference needs other state, or the model is wrong"
	if action != want {
		what = "a real difference"
	}
	return fmt.Sprintf("the kernel returns %d, Eval says %s (%s): %s", action, verdict, p.ReasonName(reason), what)
}
