// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// chart contains lines with common axes. The page shows their names.
type chart struct {
	Title      string
	X, Y       string // units
	LogX, LogY bool
	Lines      []line
}

// line is a line of a chart.
type line struct {
	Label  string
	Points plotter.XYs
	Look   int // number of the combination of color, dashes and mark
	Own    bool
}

// size is the size of a chart in points, which are the page's pixels.
type size struct{ width, height vg.Length }

// The sizes of charts: for desktops, and for phones, on which the text of the first would be too small.
var (
	wide   = size{860, 330}
	narrow = size{340, 270}
)

// Charts are drawn in colors that stand for classes of the page's style. ink is the text, rule the axes and the grid, and each style of line has a
// class.
const (
	ink   = 0
	rule  = 1
	first = 2
)

// colors is the number of lines that colors can distinguish.
const colors = 8

// paint returns the color that stands for a color of the page.
func paint(n int) color.Color { return color.RGBA{1, 2, uint8(n), 255} }

// painted matches these colors in a drawing, and fonts matches fonts.
var (
	painted = wording.Regexp(`#0102([0-9A-F]{2})`)
	fonts   = wording.Regexp(`font-family:[^;]*;font-variant:[^;]*;font-weight:[^;]*;font-style:[^;]*;`)
	prolog  = wording.Regexp(`(?s)^.*?<svg [^>]*viewBox="([^"]*)"[^>]*>`)
)

// svg draws the chart as an element of the page. The page sets the colors and the font.
func (c *chart) svg(s size) (template.HTML, error) {
	canvas, err := c.draw(s)
	if err != nil {
		return "", err
	}
	return embed(canvas, c.Title)
}

// draw draws the chart.
func (c *chart) draw(s size) (*vgsvg.Canvas, error) {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	c.axis(&p.X, c.LogX, int(s.width/70))
	c.axis(&p.Y, c.LogY, 6)
	p.X.Label.Text = c.X
	p.Add(grid())
	for _, l := range c.ordered() {
		drawn, points, err := plotter.NewLinePoints(l.Points)
		if err != nil {
			return nil, fmt.Errorf("chart %s: line %s: %w", c.Title, l.Label, err)
		}
		drawn.LineStyle, points.GlyphStyle = l.look()
		p.Add(drawn, points)
	}
	c.bounds(p)
	canvas := vgsvg.New(s.width, s.height)
	p.Draw(draw.New(canvas))
	return canvas, nil
}

// ordered returns the lines in drawing order. Floodwall's lines are broad, and are drawn first, below the others.
func (c *chart) ordered() []line {
	return slices.SortedStableFunc(slices.Values(c.Lines), func(a, b line) int { return Choice(a.Own, 0, 1) - Choice(b.Own, 0, 1) })
}

// axis sets the style of an axis, with about the given number of numbers.
func (c *chart) axis(a *plot.Axis, log bool, most int) {
	a.Color, a.Tick.Color = paint(rule), paint(rule)
	a.Label.TextStyle.Color, a.Tick.Label.Color = paint(ink), paint(ink)
	a.Label.TextStyle.Font.Variant, a.Tick.Label.Font.Variant = "Sans", "Sans"
	a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = 12, 12
	a.Padding, a.Tick.Length = 2, 4
	a.Tick.Marker = linearTicks(most)
	if log {
		a.Scale, a.Tick.Marker = plot.LogScale{}, logTicks(most)
	}
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	for _, style := range []*draw.LineStyle{&g.Vertical, &g.Horizontal} {
		*style = draw.LineStyle{Color: paint(rule), Width: 0.5, Dashes: []vg.Length{1, 3}}
	}
	return g
}

// bounds makes a linear axis start at 0 unless a value is lower, and gives a logarithmic axis a margin.
func (c *chart) bounds(p *plot.Plot) {
	for _, a := range []struct {
		axis *plot.Axis
		log  bool
	}{{&p.X, c.LogX}, {&p.Y, c.LogY}} {
		if a.log {
			a.axis.Min, a.axis.Max = a.axis.Min/1.2, a.axis.Max*1.2
			continue
		}
		a.axis.Min = min(0, a.axis.Min)
		a.axis.Max = Choice(a.axis.Max > a.axis.Min, a.axis.Max+0.04*(a.axis.Max-a.axis.Min), a.axis.Min+1)
	}
}

// dashes and marks differ between lines, so people can distinguish the lines without the colors.
var (
	dashes    = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 3, 2, 3}}
	pageMarks = []draw.GlyphDrawer{
		draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.BoxGlyph{}, draw.RingGlyph{},
		draw.PyramidGlyph{}, draw.PlusGlyph{},
	}
)

// look returns how a line and its points are drawn.
func (l *line) look() (draw.LineStyle, draw.GlyphStyle) {
	color := paint(first + l.Look%colors)
	style := draw.LineStyle{Color: color, Width: 1.5, Dashes: dashes[l.Look/colors%len(dashes)]}
	if l.Own {
		style.Width = 3
	}
	mark := draw.GlyphStyle{Color: color, Radius: 3, Shape: pageMarks[l.Look%len(pageMarks)]}
	if len(l.Points) > mostMarks {
		mark.Radius = 0
	}
	return style, mark
}

// mostMarks is the largest number of marked points of a line. More marks would hide the line.
const mostMarks = 40

// Sample draws a piece of the line for a legend.
func (l line) Sample() (template.HTML, error) {
	const width, height = 32, 12
	canvas := vgsvg.New(width, height)
	c := draw.New(canvas)
	style, mark := l.look()
	c.StrokeLine2(style, 1, height/2, width-1, height/2)
	if mark.Radius > 0 {
		c.DrawGlyph(mark, vg.Point{X: width / 2, Y: height / 2})
	}
	return embed(canvas, "")
}

// embed makes a drawing a part of a page. Without a name, it is an ornament.
func embed(canvas *vgsvg.Canvas, name string) (template.HTML, error) {
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("chart %s: %w", name, err)
	}
	text := fonts().ReplaceAllString(painted().ReplaceAllStringFunc(b.String(), variable), "")
	role := `aria-hidden="true"`
	if name != "" {
		role = `role="img" aria-label="` + template.HTMLEscapeString(name) + `"`
	}
	return template.HTML(prolog().ReplaceAllString(text, `<svg viewBox="$1" `+role+`>`)), nil
}

// variable returns the variable of the page's style that a color stands for.
func variable(color string) string {
	n, _ := strconv.ParseUint(painted().FindStringSubmatch(color)[1], 16, 8) // the pattern has only digits
	switch n {
	case ink:
		return "var(--ink)"
	case rule:
		return "var(--rule)"
	}
	return fmt.Sprintf("var(--line%d)", n-first)
}

// finite reports whether a point can be drawn on the chart's axes.
func (c *chart) finite(x, y float64) bool {
	for _, v := range []struct {
		value float64
		log   bool
	}{{x, c.LogX}, {y, c.LogY}} {
		if math.IsNaN(v.value) || math.IsInf(v.value, 0) || v.log && v.value <= 0 {
			return false
		}
	}
	return true
}
