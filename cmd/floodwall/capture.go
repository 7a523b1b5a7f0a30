// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// captureFlags are the flags of capture.
type captureFlags struct {
	rules    []string
	count    int
	duration time.Duration
	file     string
}

// capturing is the result of a capture.
type capturing struct {
	Packets int    `json:"packets"`
	Lost    uint64 `json:"lost"` // packets that came faster than they could be written
	File    string `json:"file"`
}

func captureCommand(e *env) *cobra.Command {
	var f captureFlags
	c := &cobra.Command{
		Use:   "capture",
		Short: "write packets that rules with `sample` hand out, as pcapng",
		Long: "Capture writes packets that rules with `sample` hand out to a pcapng file or a pipe, for Wireshark and tcpdump.\n" +
			"Each packet has the rule and its verdict as a comment.",
		Example: "  floodwall capture --rule listed -w listed.pcapng --for 10s\n" +
			"  floodwall capture | tcpdump -nr -",
		Args: cli.None,
		RunE: func(c *cobra.Command, _ []string) error { return e.capture(c, &f) },
	}
	c.Flags().StringArrayVar(&f.rules, "rule", nil, "only packets of the rule of this `name`; may be given several times")
	c.Flags().IntVar(&f.count, "count", 0, "end after so many packets")
	c.Flags().DurationVar(&f.duration, "for", 0, "end after this `time`, as 10s")
	c.Flags().StringVarP(&f.file, "write", "w", "-", "`file` to write to; - is standard output")
	e.JSONFlag(c)
	return c
}

func (e *env) capture(c *cobra.Command, f *captureFlags) (err error) {
	if err := e.checkCapture(c, f); err != nil {
		return err
	}
	in, err := e.Host()
	if err != nil {
		return err
	}
	ctx := c.Context()
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	packets, err := sample.Open(ctx, in.Instance, f.rules)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, packets.Close()) }()
	out, err := e.captureFile(f.file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	e.Note("capturing " + sampledRules(packets.Rules()))
	result := capturing{File: f.file}
	result.Packets, err = operate.WriteCapture(ctx, packets, out, f.count)
	if err != nil && result.complete(err) {
		e.Note("the capture ends: " + err.Error())
		err = nil
	}
	lost, lostErr := packets.Lost()
	result.Lost = lost
	return errors.Join(err, lostErr, e.captured(result))
}

func (e *env) checkCapture(c *cobra.Command, f *captureFlags) error {
	switch {
	case f.count < cli.Least[int](c, "count"):
		return cli.Usagef(c, cli.HelpHint(c), "flag --count: must be at least 1, got %d", f.count)
	case f.duration < cli.Least[time.Duration](c, "for"):
		return cli.Usagef(c, cli.HelpHint(c), "flag --for: must be positive, got %v", f.duration)
	case f.file == "-" && e.JSON:
		return cli.Usagef(c, "name a file with -w", "flag --json: standard output has the packets")
	case f.file == "-" && cli.IsTerminal(e.Stdout):
		return cli.Usagef(c, "name a file with -w, or write `floodwall capture | tcpdump -nr -`",
			"standard output is a terminal, and packets are nothing to read there")
	}
	return nil
}

// captureFile opens the output file.
func (e *env) captureFile(name string) (io.WriteCloser, error) {
	if name == "-" {
		return nopCloser{e.Stdout}, nil
	}
	return sample.CreateFile(name)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// sampledRules describes the captured rules, for example "1 in 100 packets of rule listed".
func sampledRules(oneIn map[string]uint32) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(oneIn)) {
		part := "all packets"
		if n := oneIn[name]; n > 1 {
			part = fmt.Sprintf("1 in %s packets", wording.Count(int(n)))
		}
		list = append(list, fmt.Sprintf("%s of rule %s", part, name))
	}
	return strings.Join(list, ", ")
}

// complete reports whether an error only means that no more packets will arrive, for example because the policy was unloaded. The packets captured
// before the error are then valid.
func (r *capturing) complete(err error) bool {
	var none *sample.CaptureError
	over := errors.Is(err, datapath.ErrNotLoaded) || errors.As(err, &none)
	return over && (r.Packets > 0 || r.File != "-")
}

// captured prints the result of a capture. If the packets were written to standard output, the result goes to standard error.
func (e *env) captured(r capturing) error {
	text := "captured " + wording.Things(r.Packets, "packet", "packets")
	if r.Lost > 0 {
		text += fmt.Sprintf(", and lost %s that came too fast: give the rules a smaller share", wording.Count(r.Lost))
	}
	switch {
	case e.JSON:
		return e.PrintJSON(r)
	case r.File == "-":
		e.Note(text)
	default:
		e.Println("%s in %s", text, r.File)
	}
	return nil
}
