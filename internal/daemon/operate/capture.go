// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"fmt"
	"io"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// WriteCapture writes packets as pcapng until it has written most packets (0: no limit) or ctx ends. The end of ctx is no error. WriteCapture writes
// each packet before it reads the next. It returns the number of written packets.
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
		if err := w.Write(p, fmt.Sprintf("rule %s: %s", p.Reason, p.Verdict)); err != nil {
			return packets, err
		}
		packets++
	}
	return packets, nil
}
