package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quorumlock/quorumlock/server/console"
	"github.com/quorumlock/quorumlock/server/httpapi/callers"
	"github.com/quorumlock/quorumlock/server/httpapi/jsoncodec"
	"github.com/quorumlock/quorumlock/server/internal/health"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// route is a path served by the port.
type route struct {
	name    string
	method  string
	handler http.Handler
	// open is set for health and for the console's files, which need no credential.
	open bool
	// role is set if the caller needs a role, although no message says so.
	role bool
	// operators is set for the services that operators use, whose callers may take the places reserved for operators.
	operators bool
	// streams is set if the request may have more than one message.
	streams bool
	// answers is set if the response may have more than one message.
	answers bool
	// maxBody is the request's size limit if it is above Limits.MaxBodyBytes.
	maxBody int
	// writeTimeout is the time to read a piece of the answer if it is above Limits.WriteTimeout.
	writeTimeout time.Duration
}

// unbounded reports whether requests take no place among those in flight: those of health, and files, which end soon.
func (r route) unbounded() bool { return r.open || r.method == http.MethodGet }

// maxRestoreBytes has room for all records that the audit log keeps.
const maxRestoreBytes = 1 << 20

// services are the port's own services, besides health and reflection.
var services = []string{
	wireconnect.SessionServiceName, wireconnect.LockServiceName, wireconnect.LeaseServiceName,
	wireconnect.OperatorServiceName, wireconnect.ClusterServiceName, wireconnect.AccessServiceName,
}

// procedures are the paths of the port's own services, sorted.
var procedures = listProcedures()

func listProcedures() []string {
	var paths []string
	all := wire.File_quorumlock_v1_service_proto.Services()
	for i := range all.Len() {
		for j := range all.Get(i).Methods().Len() {
			paths = append(paths, "/"+string(all.Get(i).FullName())+"/"+string(all.Get(i).Methods().Get(j).Name()))
		}
	}
	slices.Sort(paths)
	return paths
}

const (
	healthPrefix     = "/" + grpchealth.HealthV1ServiceName + "/"
	reflectionPrefix = "/grpc.reflection."
)

// routeOf returns the key of a path in the routes: the path itself, or a prefix for the standard gRPC
// services and the console.
func routeOf(path string) string {
	switch {
	case strings.HasPrefix(path, healthPrefix):
		return healthPrefix
	case strings.HasPrefix(path, reflectionPrefix):
		return reflectionPrefix
	case strings.HasPrefix(path, console.Prefix):
		return console.Prefix
	}
	return path
}

// isOperators reports whether a procedure is for operators.
func isOperators(path string) bool {
	return strings.HasPrefix(path, "/"+wireconnect.OperatorServiceName+"/") ||
		strings.HasPrefix(path, "/"+wireconnect.ClusterServiceName+"/") ||
		strings.HasPrefix(path, "/"+wireconnect.AccessServiceName+"/")
}

func (s *Server) newRoutes() map[string]route {
	routes := map[string]route{}
	options := []connect.HandlerOption{
		connect.WithCodec(jsoncodec.Codec{Subtype: "json"}),
		connect.WithCodec(jsoncodec.Codec{Subtype: "json; charset=utf-8"}),
		connect.WithInterceptors(observer{}, callers.Checker{}),
	}
	small := append(slices.Clone(options), connect.WithReadMaxBytes(s.cfg.Limits.MaxBodyBytes))
	large := append(slices.Clone(options), connect.WithReadMaxBytes(max(s.cfg.Limits.MaxBodyBytes, maxRestoreBytes)))
	ours := http.NewServeMux()
	ours.Handle(wireconnect.NewSessionServiceHandler(sessionService{s}, small...))
	ours.Handle(wireconnect.NewLockServiceHandler(lockService{s}, small...))
	ours.Handle(wireconnect.NewLeaseServiceHandler(leaseService{s}, small...))
	ours.Handle(wireconnect.NewOperatorServiceHandler(operatorService{s}, large...))
	ours.Handle(wireconnect.NewClusterServiceHandler(clusterService{s}, small...))
	ours.Handle(wireconnect.NewAccessServiceHandler(accessService{s}, large...))
	for _, path := range procedures {
		r := route{name: path, method: http.MethodPost, handler: ours, operators: isOperators(path)}
		switch path {
		case wireconnect.LockServiceWatchProcedure:
			r.handler, r.answers, r.writeTimeout = s.plainJSON(ours, s.writeLines), true, s.cfg.Limits.WatchTimeout
		case wireconnect.OperatorServiceSaveSnapshotProcedure:
			r.handler, r.answers = s.plainJSON(ours, s.writeBytes), true
		case wireconnect.OperatorServiceRestoreProcedure, wireconnect.AccessServiceSetPolicyProcedure, wireconnect.AccessServiceTestPolicyProcedure:
			r.maxBody = maxRestoreBytes
		}
		routes[path] = r
	}

	_, checks := grpchealth.NewHandler(s, connect.WithReadMaxBytes(s.cfg.Limits.MaxBodyBytes))
	routes[healthPrefix] = route{name: healthPrefix, method: http.MethodPost, handler: checks, open: true}
	routes[health.AlivePath] = route{name: health.AlivePath, method: http.MethodGet, handler: http.HandlerFunc(s.health.ServeAlive), open: true, streams: true}
	routes[health.ReadyPath] = route{name: health.ReadyPath, method: http.MethodGet, handler: http.HandlerFunc(s.health.ServeReady), open: true, streams: true}
	metrics := promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	routes["/metrics"] = route{name: "/metrics", method: http.MethodGet, handler: metrics, role: true, streams: true}

	routes[openAPIPath] = route{name: openAPIPath, method: http.MethodGet, handler: http.HandlerFunc(serveOpenAPI), role: true, streams: true}

	reflector := grpcreflect.NewStaticReflector(append(slices.Clone(services), grpchealth.HealthV1ServiceName)...)
	reflection := http.NewServeMux()
	reflection.Handle(grpcreflect.NewHandlerV1(reflector, connect.WithReadMaxBytes(s.cfg.Limits.MaxBodyBytes)))
	reflection.Handle(grpcreflect.NewHandlerV1Alpha(reflector, connect.WithReadMaxBytes(s.cfg.Limits.MaxBodyBytes)))
	routes[reflectionPrefix] = route{name: reflectionPrefix, method: http.MethodPost, handler: reflection, role: true, streams: true}
	s.routeConsole(routes)
	return routes
}

// routeConsole adds the console, unless it is off, and the paths that lead to it.
func (s *Server) routeConsole(routes map[string]route) {
	if s.cfg.NoConsole {
		return
	}
	handler := console.Handler()
	for _, path := range []string{"/", strings.TrimSuffix(console.Prefix, "/"), console.Prefix} {
		routes[path] = route{name: path, method: http.MethodGet, handler: handler, open: true, streams: true}
	}
}
