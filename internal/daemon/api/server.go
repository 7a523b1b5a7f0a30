// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/metrics"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// prefix is the beginning of every path.
const prefix = "/v1"

// metricsPath is the path of the metrics. The server also serves it without prefix, because Prometheus scrapes that path by default.
const metricsPath = "/metrics"

// How many requests of a kind are answered at a time. Each origin has its own limit.
const (
	maxStreams   = 16
	maxQuestions = 2
	maxLooks     = 2
	maxPasts     = 2
)

// Parts are the parts of the daemon that the API needs.
type Parts struct {
	Host    operate.Host
	Events  *Events
	Attacks *attack.Watcher
	Fleet   func() *wire.View       // the view of the fleet; nil, or a nil result: not known
	Tell    func(kind, text string) // publishes an event and prints it
	Figures []metrics.Part          // further metrics, beside those of the running policy
	Audit   *slog.Logger            // gets a line for each change
}

// Server answers requests.
type Server struct {
	parts  Parts
	routes []Route
	status *paced[*control.Status]
	lists  *paced[[]lists.Status]
	now    *paced[*operate.Top] // a sample of the traffic of the usual length, which all clients share
	series *metrics.Series

	reports *paced[AttackList] // each read reads the files of all reports

	metrics http.Handler
	limits  [len(origins)]limits // one for each origin, so that users of this host cannot use up root's slots
}

// limits are the slots of an origin.
type limits struct {
	streams   *slots // for clients that follow events
	questions *slots // for questions about packets
	pages     *slots // for pages of sets
	looks     *slots // for samples of traffic
	pasts     *slots // for series, each up to a megabyte long
}

func newLimits() limits {
	return limits{
		streams:   newSlots(maxStreams, "clients that follow events"),
		questions: newSlots(maxQuestions, "questions about packets"),
		pages:     newSlots(1, "pages of sets"),
		looks:     newSlots(maxLooks, "looks at traffic"),
		pasts:     newSlots(maxPasts, "answers with the past minutes"),
	}
}

// New makes a server with all routes.
func New(p Parts) *Server {
	s := &Server{parts: p, routes: Routes(), status: newPaced(p.Host.Status, restShare), lists: newPaced(p.Host.Feeds, restShare)}
	s.now = newPaced(func(ctx context.Context) (*operate.Top, error) { return p.Host.Top(ctx, usualTop) }, 1)
	s.reports = newPaced(func(context.Context) (AttackList, error) {
		list, err := p.Attacks.Store().List()
		return AttackList{p.Attacks.Active(), list, p.Attacks.Learning()}, err
	}, restShare)
	s.series = metrics.New(p.Host.Decided)
	for i := range s.limits {
		s.limits[i] = newLimits()
	}
	s.metrics = metrics.Handler(append([]metrics.Part{metrics.Running(s.status.get), metrics.Lists(s.lists.get)}, p.Figures...)...)
	return s
}

// Keep records the past minutes for /v1/series, until ctx ends.
func (s *Server) Keep(ctx context.Context) { s.series.Keep(ctx) }

// Note publishes that an action succeeded.
func (s *Server) Note(text string) { s.parts.Tell(KindDone, text) }

// Warn publishes that an action failed.
func (s *Server) Warn(text string) { s.parts.Tell(KindWarning, text) }

// Handler returns the handler for requests from an origin.
func (s *Server) Handler(from Origin) http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.routes {
		answer := func(w http.ResponseWriter, request *http.Request) { s.serve(&r, from, w, request) }
		mux.HandleFunc(r.Method+" "+prefix+r.Path, answer)
		if r.Path == metricsPath {
			mux.HandleFunc(r.Method+" "+metricsPath, answer)
		}
	}
	for path, file := range Files() {
		r := Route{Method: http.MethodGet, Path: path, Access: Read, serve: func(c *Call) error { return c.file(file) }}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, request *http.Request) { s.serve(&r, from, w, request) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, request *http.Request) {
		s.call(from, w, request).fail(s.unknown(mux, request))
	})
	return mux
}

func (s *Server) call(from Origin, w http.ResponseWriter, request *http.Request) *Call {
	return &Call{Server: s, limits: s.limits[from], from: from, by: peerIn(request.Context()), request: request, out: w}
}

// serve answers a request of a route.
func (s *Server) serve(r *Route, from Origin, w http.ResponseWriter, request *http.Request) {
	c := s.call(from, w, request)
	if err := permit(from, c.by, r.Access); err != nil {
		c.fail(err)
		return
	}
	if r.Body == nil { // if there is a body, the deadline is for reading the body
		if err := c.noBody(); err != nil {
			c.fail(err)
			return
		}
		http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := r.serve(c); err != nil {
		c.fail(err)
	}
}

// unknown returns the error for a request without a route.
func (s *Server) unknown(mux *http.ServeMux, request *http.Request) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := request.Clone(request.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); strings.HasPrefix(pattern, method) {
			allowed = append(allowed, method)
		}
	}
	if allowed != nil {
		return &Error{http.StatusMethodNotAllowed, request.Method + " is not for this path", "it takes " + strings.Join(allowed, " and ")}
	}
	paths := []string{"/"}
	for _, r := range s.routes {
		paths = append(paths, prefix+r.Path)
	}
	slices.Sort(paths)
	return &Error{http.StatusNotFound, "there is no " + request.URL.Path, "the paths are " + strings.Join(slices.Compact(paths), ", ")}
}
