package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// loadName is what this program is called as a process of clients that use an HTTP server.
const loadName = "floodwall-load"

// loadReport is a line of what that process writes: each sample as it comes, and at the end the summary.
type loadReport struct {
	Sample  *Sample
	Summary *LoadSummary
}

// loadMain is all that the process of clients does.
func loadMain() error {
	var o LoadOptions
	if err := readInput(&o); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	var failed error
	o.Apart = false
	o.OnSample = func(s Sample) { failed = errors.Join(failed, out.Encode(loadReport{Sample: &s})) }
	summary, err := Load(context.Background(), o)
	return errors.Join(err, failed, out.Encode(loadReport{Summary: &summary}))
}

// start runs the clients in a process of their own and reports what they get.
func (o *LoadOptions) start(ctx context.Context) (s LoadSummary, err error) {
	if o.TLS != nil || o.Host == nil {
		return s, errors.New("load: clients in a process of their own need a host, and cannot use TLS")
	}
	out, in := io.Pipe()
	followed := make(chan error, 1)
	go func() { followed <- o.follow(out, &s) }()
	_, err = o.Host.play(ctx, role{name: loadName, cpu: o.CPU, priority: MoreUrgent, input: o, output: in})
	in.Close()
	err = cmp.Or(err, <-followed)
	if ctx.Err() != nil {
		return LoadSummary{}, ctx.Err()
	}
	if err != nil {
		return LoadSummary{}, fmt.Errorf("load: %w", err)
	}
	return s, nil
}

// follow reads what the process writes, to its end.
func (o *LoadOptions) follow(out *io.PipeReader, s *LoadSummary) error {
	defer out.Close()
	for reports, complete := json.NewDecoder(out), false; ; {
		var r loadReport
		switch err := reports.Decode(&r); {
		case err == io.EOF && complete:
			return nil
		case err != nil:
			return fmt.Errorf("what the clients wrote: %w", err)
		}
		if r.Sample != nil && o.OnSample != nil {
			o.OnSample(*r.Sample)
		}
		if r.Summary != nil {
			*s, complete = *r.Summary, true
		}
	}
}
