package attack

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/text/display"
)

//go:embed report.html
var pageText string

// page is the report as one page, which loads nothing. html/template escapes what is written into it.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(template.FuncMap{
		"percent": percent,
		"count":   count,
		"amount":  func(a operate.Amount) string { return display.Count(a.Packets) + " packets, " + display.Bytes(a.Bytes) },
		"rate":    display.Rate,
		"bytes":   display.Bytes,
		"bits": func(perSecond float64) string {
			return strings.TrimSuffix(display.Bytes(uint64(perSecond)), "B") + "bit/s"
		},
		"error": func(v float64) string { return fmt.Sprintf("±%.0f%%", min(v, 100)) },
		"time":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"clock": func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
		"share": func(v *float64) string { return fmt.Sprintf("%.0f%%", 100**v) },
	}).Parse(pageText))
})

// count writes a number of any kind that a report has.
func count(n any) string {
	switch n := n.(type) {
	case uint32:
		return display.Count(uint64(n))
	case int:
		return display.Count(n)
	}
	return display.Count(n.(uint64))
}

// percent writes a share in percent, small ones with more digits.
func percent(share float64) string {
	if share > 0 && share < 0.001 {
		return fmt.Sprintf("%.3f%%", 100*share)
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}

// WriteHTML writes the report as one page that needs nothing else.
func (r *Report) WriteHTML(out io.Writer) error { return page().Execute(out, r) }
