// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"
)

// Picture is a chart in a separate file, for pages that cannot set its colors. It has the page's colors, light and dark, and the names of its lines.
type Picture struct {
	Title string
	X, Y  string // units; both axes are logarithmic, unless X is linear

	LinearX bool

	chart chart
	looks looks
}

// Line adds a line of points. It leaves out points that a logarithmic axis cannot show.
func (p *Picture) Line(label string, points [][2]float64) {
	p.chart.LogX, p.chart.LogY = !p.LinearX, true
	if p.looks == nil {
		p.looks = looks{}
	}
	p.chart.add(label, p.looks.of(label), points)
}

// The sizes of the picture's parts in its own units: the chart, and below it the names, in rows with as many as fit.
const (
	legendLine   = 22
	legendColumn = 430
)

// WriteSVG writes the picture.
func (p *Picture) WriteSVG(w io.Writer) error {
	p.chart.Title, p.chart.X, p.chart.Y = p.Title, p.X, p.Y
	drawn, err := p.chart.svg(wide)
	if err != nil {
		return err
	}
	width, height := float64(wide.width), float64(wide.height)
	rows := (len(p.chart.Lines) + 1) / 2
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img">`+"\n", width, 30+height+float64(legendLine*rows)+8)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>\n%stext { font-family: system-ui, \"Segoe UI\", Roboto, sans-serif; }\n</style>\n", p.Title, rootStyle())
	b.WriteString(`<rect width="100%" height="100%" style="fill: var(--page)"/>` + "\n") // the page around it may be dark when the browser is not
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="15" font-weight="600" style="fill: var(--ink)">%s</text>`+"\n", p.Title)
	fmt.Fprintf(&b, `<svg x="0" y="30" width="%g" height="%g"%s`+"\n", width, height, strings.TrimPrefix(string(drawn), "<svg"))
	for i, l := range p.chart.Lines {
		if err := legend(&b, l, float64(8+legendColumn*(i%2)), 30+height+float64(legendLine*(i/2))); err != nil {
			return err
		}
	}
	b.WriteString("</svg>\n")
	_, err = io.WriteString(w, b.String())
	return err
}

// legend draws a sample of a line and writes its name.
func legend(b *strings.Builder, l line, x, y float64) error {
	sample, err := l.Sample()
	if err != nil {
		return err
	}
	fmt.Fprintf(b, `<svg x="%g" y="%g" width="32" height="12"%s`+"\n", x, y+4, strings.TrimPrefix(string(sample), "<svg"))
	fmt.Fprintf(b, `<text x="%g" y="%g" font-size="13" style="fill: var(--ink)">%s</text>`+"\n", x+40, y+15, l.Label)
	return nil
}

// rootStyle returns the page's colors, light and dark: the part of its style before the first other rule.
func rootStyle() string {
	colors, _, _ := strings.Cut(style, "* {")
	return colors
}
