package operate

import (
	"context"
	"fmt"
	"io"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// WriteCapture writes packets as pcapng until there are as many as are wanted, 0 for no bound, or ctx ends, which is no error. Each
// packet is written before the next is read. It returns how many there were.
func WriteCapture(ctx context.Context, from *sample.Capture, out io.Writer, most int) (packets int, err error) {
	w, err := sample.NewFileWriter(out, datapath.SampleBytes, from.Devices()...)
	if err != nil {
		return 0, err
	}
	for most == 0 || packets < most {
		p, err := from.Read(ctx)
		if err != nil && ctx.Err() != nil {
			return packets, nil
		}
		if err != nil {
			return packets, err
		}
		err = w.Write(sample.FilePacket{
			Time: p.Time, Device: p.Device, Length: p.Length, Frame: p.Frame,
			Comment: fmt.Sprintf("rule %s: %s", p.Rule, p.Verdict),
		})
		if err != nil {
			return packets, err
		}
		packets++
	}
	return packets, nil
}
