package attack

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"sync"
	"time"
)

//go:embed report.html
var pageText string

// page is the report as one page, which loads nothing. html/template escapes what is written into it.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(template.FuncMap{
		"percent": func(v float64) string { return fmt.Sprintf("%.1f%%", 100*v) },
		"number":  func(v float64) string { return fmt.Sprintf("%.0f", v) },
		"mega":    func(v float64) string { return fmt.Sprintf("%.1f", v/1e6) },
		"time":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"share":   func(v *float64) string { return fmt.Sprintf("%.0f%%", 100**v) },
	}).Parse(pageText))
})

// WriteHTML writes the report as one page that needs nothing else.
func (r *Report) WriteHTML(out io.Writer) error { return page().Execute(out, r) }
