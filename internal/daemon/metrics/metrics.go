// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Family is all metrics with the same name.
type Family struct {
	Name, Help string
	Labels     []string

	desc *prometheus.Desc
	kind prometheus.ValueType
}

// NewCounter returns a family of values that only grow. The name ends in _total.
func NewCounter(name, help string, labels ...string) *Family {
	return &Family{name, help, labels, prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// NewGauge returns a family of values that can grow and shrink.
func NewGauge(name, help string, labels ...string) *Family {
	return &Family{name, help, labels, prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// Add adds a value to a scrape. Values of one family with the same labels are summed.
type Add func(f *Family, value float64, labels ...string)

// Part is a group of metrics that are read together. Read is called for each scrape.
type Part struct {
	Families []*Family
	Read     func(ctx context.Context, add Add) error
}

// scrapeTime is how long reading may take. Prometheus itself waits 10 seconds by default.
const scrapeTime = 30 * time.Second

// collector is the prometheus.Collector of all parts.
type collector []Part

// Describe sends the families.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, p := range c {
		for _, f := range p.Families {
			to <- f.desc
		}
	}
}

// Collect reads all parts. A part that cannot be read makes the scrape fail.
func (c collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	for _, p := range c {
		values := newFigures()
		err := p.Read(ctx, values.add)
		if err == nil {
			err = values.send(to)
		}
		if err != nil {
			to <- prometheus.NewInvalidMetric(p.Families[0].desc, err)
		}
	}
}

// figures contains the values that a part has read, in the order of reading.
type figures struct {
	at   map[string]int // index of a value, by family and labels
	list []figure
}

type figure struct {
	of     *Family
	value  float64
	labels []string
}

func newFigures() *figures { return &figures{at: map[string]int{}} }

func (v *figures) add(f *Family, value float64, labels ...string) {
	key := f.Name + "\x00" + strings.Join(labels, "\x00")
	if i, ok := v.at[key]; ok {
		v.list[i].value += value
		return
	}
	v.at[key] = len(v.list)
	v.list = append(v.list, figure{f, value, labels})
}

func (v *figures) send(to chan<- prometheus.Metric) error {
	for _, one := range v.list {
		m, err := prometheus.NewConstMetric(one.of.desc, one.of.kind, one.value, one.labels...)
		if err != nil {
			return fmt.Errorf("metric %s: %w", one.of.Name, err)
		}
		to <- m
	}
	return nil
}

// Handler answers scrapes with all parts, and with metrics of this process.
func Handler(parts ...Part) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector(parts), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: 4, Timeout: scrapeTime, DisableCompression: true,
	})
}
