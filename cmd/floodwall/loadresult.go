package main

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
)

// loadResult is what load found, as printed with --json.
type loadResult struct {
	URL    string         `json:"url"`
	Server netip.AddrPort `json:"server"`
	lab.LoadSummary
	Samples []lab.Sample `json:"samples"`

	flags *loadFlags
}

// The size of the chart.
const (
	chartLines = 60
	chartWidth = 40
)

func (e *env) printLoad(r *loadResult) error {
	if e.json {
		return e.printJSON(r)
	}
	e.println("%s", r.how())
	e.println("")
	e.text(lab.Chart(r.Samples, chartLines, chartWidth))
	e.println("")
	e.println("answered  %s, %.1f per second, %s", count(r.OK), r.Rate, amount(r.Bytes))
	e.println("failed    %s%s", count(r.Failed), r.kinds(" (", ")"))
	if r.Interrupted > 0 {
		e.println("under way %s when it was interrupted", count(r.Interrupted))
	}
	if r.OK == 0 {
		return nil
	}
	e.println("")
	t := newTable("of those answered", ">requests", ">mean", ">half", ">90%", ">99%", ">99.9%", ">max")
	row := func(name string, n uint64, l lab.Latency) {
		t.row(name, count(n), lab.Millis(l.Mean), lab.Millis(l.P50), lab.Millis(l.P90), lab.Millis(l.P99), lab.Millis(l.P999), lab.Millis(l.Max))
	}
	for _, p := range r.Phases {
		row(p.Name, p.Requests, p.Latency)
	}
	row("whole request", r.OK, r.Latency)
	e.table(t)
	return nil
}

// how is what was done, in a line.
func (r *loadResult) how() string {
	o := r.flags.options
	parts := []string{r.URL}
	if r.URL != fmt.Sprintf("http://%s/", r.Server) {
		parts[0] += fmt.Sprintf(" at %s", r.Server)
	}
	if o.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%g requests a second", o.Rate))
	}
	if o.Connections > 0 {
		parts = append(parts, things(o.Connections, "connection", "connections"))
	}
	if !o.KeepAlive {
		parts = append(parts, "a new one for each request")
		if o.Connections == 0 {
			parts[len(parts)-1] = "a new connection for each"
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("HTTP/%s", r.flags.version)), ", ")
}

// kinds lists the failures by kind, the most frequent first; "" when there are none.
func (r *loadResult) kinds(before, after string) string {
	kinds := slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int {
		if d := int(r.Errors[b]) - int(r.Errors[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, k := range kinds {
		kinds[i] = count(r.Errors[k]) + " " + k
	}
	if len(kinds) == 0 {
		return ""
	}
	return before + strings.Join(kinds, ", ") + after
}

// loadError is why a load came to nothing, with what helps.
type loadError struct{ msg, hint string }

func (e *loadError) Error() string { return e.msg }

// Hint is what helps.
func (e *loadError) Hint() string { return e.hint }

// trouble is an error when there was no answer at all.
func (r *loadResult) trouble() error {
	if r.OK > 0 || r.Failed == 0 {
		return nil
	}
	hints := []struct{ kind, hint string }{
		{lab.FailedRefused, fmt.Sprintf("nothing listens at %s: is the server running?", r.Server)},
		{lab.FailedTimeout, "is the address right, and does a firewall drop the requests? --timeout gives a slow server more time"},
		{lab.FailedUnreachable, fmt.Sprintf("there is no way to %s from here", r.Server.Addr())},
		{lab.FailedCertificate, "--insecure takes any certificate"},
		{lab.FailedNoTLS, "does it speak http:// at this port?"},
		{lab.FailedReset, "does it speak https:// at this port?"},
		{lab.FailedClosed, "does it speak https:// at this port?"},
		{lab.FailedAnswer, "is that the port of a web server?"},
		{"status 400", "does it speak https:// at this port?"},
	}
	err := &loadError{msg: "no request was answered: " + r.kinds("", "")}
	for _, h := range hints {
		if r.Errors[h.kind] > 0 {
			err.hint = h.hint
			break
		}
	}
	return err
}

// live is a line on a terminal that is replaced while something goes on.
type live struct{ out io.Writer }

// newLive shows a line on a terminal, and nothing anywhere else.
func newLive(out io.Writer) *live {
	if f, ok := out.(*os.File); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return &live{out}
		}
	}
	return &live{io.Discard}
}

func (l *live) show(format string, args ...any) { fmt.Fprintf(l.out, "\r\x1b[Kload: "+format, args...) }

func (l *live) end() { fmt.Fprint(l.out, "\r\x1b[K") }
