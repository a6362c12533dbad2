//! The table of operations: what each takes, what it answers, who may call it. One entry for each route and method.

use serde_json::json;
use utoipa::ToSchema as _;
use utoipa::openapi::path::{
    Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, Type};
use utoipa::openapi::{
    Content, HeaderBuilder, HttpMethod, Object, RefOr, Required, ResponseBuilder, Schema,
    SecurityRequirement,
};

use super::schemas;
use crate::flush::{CompensationReport, FlushReport};
use crate::http::problem::{CODES, Wire};
use crate::http::{admin, likes, lists, look, lookup, paths, state, trace, ui};
use crate::jobs::JobsStatus;
use crate::ledger::FeedStatus;
use crate::limits::{LIST_LIMIT, LIST_LIMIT_MAX};
use crate::live::Verification;

/// Names of the security schemes.
pub(super) const SERVICE: &str = "serviceKey";
pub(super) const NAMED: &str = "namedKey";
pub(super) const USER: &str = "userToken";
pub(super) const ADMIN: &str = "adminToken";

const PROBLEM: &str = "application/problem+json";

/// Who may call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Everybody; keys are not looked at.
    Open,
    /// Everybody, and whoever names a user with a key.
    Readers,
    /// Whoever has a key for likes, or is a user.
    Users,
    Operators,
}

/// What an answer that succeeds consists of.
enum Body {
    Json(String),
    Text(&'static str),
    /// One of these types.
    Texts(&'static [&'static str]),
    Nothing,
}

/// One operation.
pub(super) struct Call {
    pub(super) method: HttpMethod,
    pub(super) path: &'static str,
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    who: Who,
    parameters: Vec<Parameter>,
    /// The schema of the body.
    takes: Option<&'static str>,
    answers: Vec<(u16, &'static str, Body)>,
    /// Whether a cache may keep the answer, which then has an `ETag`.
    cached: bool,
    codes: Vec<&'static str>,
}

/// What any call may end with.
const ALWAYS: &[&str] = &["internal", "timeout"];
/// Calls that are refused while too much is under way.
const SHED: &[&str] = &["overloaded"];
/// Calls that refuse parameters which they do not take.
const QUERY: &[&str] = &["field_invalid"];
/// Calls that look at a key.
const KEYED: &[&str] = &["unauthorized", "forbidden"];
/// Calls with an id or a kind in the path: an empty one is another address.
const PATH: &[&str] = &["field_invalid", "path_invalid", "not_found"];
const KIND: &[&str] = &["kind_unknown"];
const NO_USER: &[&str] = &["user_missing"];
const BODY: &[&str] = &[
    "field_invalid",
    "count_invalid",
    "body_invalid",
    "body_too_large",
    "content_type",
];
const READ: &[&str] = &[
    "busy",
    "recovering",
    "redis_unavailable",
    "redis_full",
    "database_unavailable",
];
const DATABASE: &[&str] = &["database_unavailable"];
/// A like of a target that was erased.
const GONE: &[&str] = &["target_gone"];
const WRITE: &[&str] = &["rate_limited", "backlog_full", "outcome_unknown"];
/// A target whose erasure is not done.
const OPEN: &[&str] = &["erasure_open"];
const JOB: &[&str] = &["busy", "job_failed", "job_died", "lease_held", "stopping"];

fn json<T: utoipa::ToSchema>() -> Body {
    Body::Json(T::name().into_owned())
}

fn named(name: &str) -> Body {
    Body::Json(name.to_owned())
}

fn call(
    method: HttpMethod,
    path: &'static str,
    (id, tag, summary): (&'static str, &'static str, &'static str),
    who: Who,
) -> Call {
    Call {
        method,
        path,
        id,
        tag,
        summary,
        who,
        parameters: Vec::new(),
        takes: None,
        answers: Vec::new(),
        cached: false,
        codes: ALWAYS.to_vec(),
    }
    .fails(if who == Who::Open { &[] } else { &[KEYED] })
    .fails(if path.starts_with("/v1/") {
        &[SHED, QUERY]
    } else if path.starts_with("/admin/") {
        &[QUERY]
    } else {
        &[]
    })
}

/// All of them, in the order of the documents.
pub(super) fn calls() -> Vec<Call> {
    use HttpMethod::{Delete, Get, Post, Put};
    vec![
        write(Put, ("like", "likes", "Likes a target")),
        write(Delete, ("unlike", "likes", "Takes a like back")),
        call(Get, paths::LIKES, ("likes", "likes", "What is known of a target"), Who::Readers)
            .takes([path_kind(), path_id(), user_header()])
            .cached(json::<likes::Likes<'static>>())
            .fails(&[PATH, KIND, READ]),
        call(Get, paths::LIKERS, ("likers", "lists", "Who likes a target, newest first"), Who::Readers)
            .takes([path_kind(), path_id(), user_header(), limit(), cursor()])
            .cached(json::<lists::Users<'static>>())
            .fails(&[PATH, KIND, READ]),
        call(Get, paths::USER_LIKES, ("userLikes", "lists", "What a user likes, newest first"), Who::Readers)
            .takes([path_user(), user_header(), query_kind(), limit(), cursor()])
            .cached(json::<lists::Likes<'static>>())
            .fails(&[PATH, KIND, NO_USER, READ]),
        call(Get, paths::RANKINGS, ("ranking", "lists", "The most liked targets of a kind"), Who::Readers)
            .takes([path_kind(), user_header(), limit(), cursor()])
            .cached(json::<lists::Targets<'static>>())
            .fails(&[PATH, KIND, READ]),
        call(Post, paths::LOOKUP, ("lookup", "likes", "Reads many targets at once"), Who::Readers)
            .takes([user_header()])
            .body(schemas::LOOKUP)
            .answers(200, "One result for each target, in the same order", json::<lookup::Results<'static>>())
            .fails(&[BODY, KIND, READ]),
        call(Post, paths::BATCH, ("batch", "likes", "Many likes and unlikes, each with a result of its own"), Who::Users)
            .body(schemas::BATCH)
            .answers(200, "One result for each operation, in the same order; one that is refused does not spoil the others", named(schemas::BATCH_RESULTS))
            .fails(&[BODY]),
        call(Post, paths::FLUSHES, ("flush", "admin", "Carries everything accepted so far into MySQL"), Who::Operators)
            .answers(200, "What the flush did", json::<FlushReport>())
            .fails(&[JOB]),
        call(Post, paths::COMPENSATIONS, ("compensate", "admin", "Runs the compensator"), Who::Operators)
            .answers(200, "What the compensator did", json::<CompensationReport>())
            .fails(&[JOB]),
        call(Get, paths::SLICES, ("slices", "admin", "How the flush stands"), Who::Operators)
            .answers(200, "Live slices, and the last runs of this process", json::<JobsStatus>())
            .fails(&[JOB]),
        call(Get, paths::FEED, ("feed", "admin", "How the change feed stands"), Who::Operators)
            .answers(200, "How the change feed stands", json::<FeedStatus>())
            .fails(&[DATABASE]),
        call(Post, paths::FEED_RESUME, ("resumeFeed", "admin", "Lets a stopped change feed begin again, with a gap"), Who::Operators)
            .answers(200, "How it stands now", json::<FeedStatus>())
            .fails(&[DATABASE]),
        call(Get, paths::LIVE, ("live", "admin", "What goes on, as server-sent events: history once, then a snapshot each second"), Who::Operators)
            .answers(200, "Events without an end; their data are JSON", Body::Text("text/event-stream"))
            .fails(&[SHED]),
        call(Post, paths::VERIFICATIONS, ("verify", "admin", "Compares Redis and MySQL; only reads"), Who::Operators)
            .answers(200, "What was found", json::<Verification>())
            .fails(&[READ]),
        call(Get, paths::TARGETS, ("lookAtTarget", "admin", "Looks closely at a target"), Who::Operators)
            .takes([path_kind(), path_id()])
            .answers(200, "What Redis holds of it, and what MySQL has", json::<look::TargetLook>())
            .fails(&[PATH, KIND, READ]),
        call(Get, paths::USERS, ("lookAtUser", "admin", "Looks closely at a user"), Who::Operators)
            .takes([path_erased()])
            .answers(200, "What Redis holds of it, and what it likes", json::<look::UserLook>())
            .fails(&[PATH, READ]),
        call(Delete, paths::USERS, ("eraseUser", "admin", "Erases a user: everything is taken back and removed"), Who::Operators)
            .takes([path_erased()])
            .answers(202, "The job; Location has its address", json::<admin::Job>())
            .fails(&[PATH, READ]),
        call(Delete, paths::TARGETS, ("eraseTarget", "admin", "Erases a target: nobody likes it, or can like it, until it is restored"), Who::Operators)
            .takes([path_kind(), path_id()])
            .answers(202, "The job; Location has its address", json::<admin::Job>())
            .fails(&[PATH, KIND, READ]),
        call(Put, paths::RESTORE, ("restoreTarget", "admin", "Lets an erased target be liked again"), Who::Operators)
            .takes([path_kind(), path_id()])
            .answers(200, "It can be liked, also if it was not gone", json::<admin::Restored<'static>>())
            .fails(&[PATH, KIND, JOB, OPEN]),
        call(Get, paths::JOBS, ("job", "admin", "How an erasure stands"), Who::Operators)
            .takes([path_job()])
            .answers(200, "The job", json::<admin::Job>())
            .fails(&[PATH, DATABASE]),
        call(Get, paths::HEALTHZ, ("alive", "process", "Whether the process lives"), Who::Open)
            .answers(200, "It lives", json::<state::Alive>()),
        call(Get, paths::READYZ, ("ready", "process", "Whether the process can serve"), Who::Open)
            .answers(200, "It can, though perhaps degraded", json::<state::Ready>())
            .answers(503, "It cannot", json::<state::Ready>()),
        call(Get, paths::METRICS, ("metrics", "process", "Metrics for Prometheus"), Who::Open)
            .answers(200, "Metrics in text format 0.0.4", Body::Text("text/plain")),
        call(Get, paths::OPENAPI, ("openapi", "documents", "This document"), Who::Open)
            .answers(200, "OpenAPI 3.1", Body::Text("application/json")),
        call(Get, paths::DOCS, ("docs", "documents", "A page to try the calls"), Who::Open)
            .answers(200, "The page", Body::Text("text/html")),
        call(Get, paths::DOCS_SCRIPT, ("docsScript", "documents", "The script of the page"), Who::Open)
            .answers(200, "The script", Body::Text("text/javascript")),
        call(Get, paths::DOCS_STYLE, ("docsStyle", "documents", "The style of the page"), Who::Open)
            .answers(200, "The style", Body::Text("text/css")),
        call(Get, paths::UI, ("ui", "documents", "A page that shows what goes on"), Who::Open)
            .answers(200, "The page", Body::Text("text/html")),
        call(Get, paths::UI_FILE, ("uiFile", "documents", "A file of that page"), Who::Open)
            .takes([path_file()])
            .answers(200, "The file", Body::Texts(&["text/javascript", "text/css", "image/svg+xml"]))
            .fails(&[&["not_found", "path_invalid"]]),
    ]
}

fn write(method: HttpMethod, names: (&'static str, &'static str, &'static str)) -> Call {
    let gone = if method == HttpMethod::Put { GONE } else { &[] };
    call(method, paths::LIKES, names, Who::Users)
        .takes([
            path_kind(),
            path_id(),
            user_header(),
            durability(),
            wait_ms(),
        ])
        .answers(200, "Accepted", named(schemas::WRITTEN))
        .answers(
            202,
            "Accepted, and MySQL does not have it within wait_ms",
            named(schemas::WRITTEN),
        )
        .fails(&[PATH, KIND, NO_USER, READ, WRITE, gone])
}

impl Call {
    fn takes<const N: usize>(mut self, parameters: [Parameter; N]) -> Self {
        self.parameters.extend(parameters);
        self
    }

    fn body(mut self, schema: &'static str) -> Self {
        self.takes = Some(schema);
        self
    }

    fn answers(mut self, status: u16, text: &'static str, body: Body) -> Self {
        self.answers.push((status, text, body));
        self
    }

    fn cached(mut self, body: Body) -> Self {
        self.cached = true;
        let tag = "Tags that the caller has; if the answer has one of them it is 304";
        self.parameters.push(
            ParameterBuilder::new()
                .name("If-None-Match")
                .parameter_in(ParameterIn::Header)
                .required(Required::False)
                .description(Some(tag))
                .schema(Some(Object::with_type(Type::String)))
                .build(),
        );
        self.answers(200, "What was asked for", body).answers(
            304,
            "The caller has it already",
            Body::Nothing,
        )
    }

    fn fails(mut self, codes: &[&[&'static str]]) -> Self {
        self.codes.extend(codes.concat());
        self
    }

    /// As the document has it.
    pub(super) fn operation(self) -> Operation {
        let mut operation = OperationBuilder::new()
            .operation_id(Some(self.id))
            .tag(self.tag)
            .summary(Some(self.summary))
            .securities(Some(securities(self.who)));
        for parameter in self.parameters {
            operation = operation.parameter(parameter);
        }
        if let Some(name) = self.takes {
            let body = RequestBodyBuilder::new()
                .content(
                    "application/json",
                    Content::new(Some(schemas::reference(name))),
                )
                .required(Some(Required::True));
            operation = operation.request_body(Some(body.build()));
        }
        let mut statuses: Vec<u16> = CODES
            .iter()
            .filter(|(code, _)| self.codes.contains(code))
            .map(|(_, status)| *status)
            .collect();
        statuses.sort_unstable();
        statuses.dedup();
        for (status, text, body) in self.answers {
            let mut response = success(text, body, self.cached);
            if [paths::USERS, paths::TARGETS].contains(&self.path) && status == 202 {
                let address = header("The address of the job", string());
                response = response.header("Location", address);
            }
            if statuses.contains(&status) {
                response = response.content(PROBLEM, problem(status, &self.codes));
                statuses.retain(|other| *other != status);
            }
            operation = operation.response(status.to_string(), response.build());
        }
        for status in statuses {
            let response = failure(status, &self.codes);
            operation = operation.response(status.to_string(), response.build());
        }
        operation.build()
    }
}

fn securities(who: Who) -> Vec<SecurityRequirement> {
    let names: &[&str] = match who {
        Who::Open => &[],
        Who::Readers | Who::Users => &[SERVICE, NAMED, USER],
        Who::Operators => &[ADMIN, NAMED],
    };
    let nobody = (who == Who::Readers).then(SecurityRequirement::default);
    let keys = names
        .iter()
        .map(|name| SecurityRequirement::new::<_, [&str; 0], &str>(*name, []));
    keys.chain(nobody).collect()
}

fn header(text: &str, schema: ObjectBuilder) -> utoipa::openapi::Header {
    HeaderBuilder::new()
        .description(Some(text))
        .schema(Some(schema))
        .build()
}

fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// What every answer carries.
fn common(response: ResponseBuilder) -> ResponseBuilder {
    let id = string().pattern(Some("^[A-Za-z0-9_.:/+=-]{1,128}$"));
    let id = header(
        "The caller's own if it is well-formed, otherwise a new one",
        id,
    );
    let traced = header(
        "To a request with a valid traceparent: its trace, and a number of this request",
        string().pattern(Some("^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")),
    );
    response
        .header("X-Request-Id", id)
        .header(trace::ANSWER.as_str(), traced)
        .header("Cache-Control", header("What caches may do", string()))
}

fn success(text: &str, body: Body, cached: bool) -> ResponseBuilder {
    let response = common(ResponseBuilder::new().description(text));
    let response = match body {
        Body::Nothing => response,
        Body::Json(name) => response.content(
            "application/json",
            Content::new(Some(schemas::reference(&name))),
        ),
        Body::Text("application/json") => response.content(
            "application/json",
            Content::new(Some(Object::with_type(Type::Object))),
        ),
        Body::Texts(kinds) => kinds.iter().fold(response, |response, kind| {
            response.content(*kind, Content::new(Some(Object::with_type(Type::String))))
        }),
        Body::Text(kind) => {
            response.content(kind, Content::new(Some(Object::with_type(Type::String))))
        }
    };
    if !cached {
        return response;
    }
    let tag = header(
        "A strong tag",
        string().pattern(Some("^\"[A-Za-z0-9_-]{16}\"$")),
    );
    response
        .header("ETag", tag)
        .header("Vary", header("What the answer depends on", string()))
}

/// The codes of a call that have this status.
fn codes_of(status: u16, codes: &[&'static str]) -> Vec<&'static str> {
    let with = CODES
        .iter()
        .filter(|(code, of)| *of == status && codes.contains(code));
    with.map(|(code, _)| *code).collect()
}

/// A problem of this status, with no other codes than the call's.
fn problem(status: u16, codes: &[&'static str]) -> Content {
    let number = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .enum_values(Some([json!(status)]));
    let fixed = ObjectBuilder::new()
        .property("code", string().enum_values(Some(codes_of(status, codes))))
        .property("status", number)
        .required("request_id");
    let problem = schemas::reference(&Wire::<'static>::name());
    let problem = AllOfBuilder::new().item(problem).item(fixed).build();
    Content::new(Some(RefOr::T(Schema::AllOf(problem))))
}

fn failure(status: u16, codes: &[&'static str]) -> ResponseBuilder {
    let text = codes_of(status, codes).join(", ");
    let response = common(ResponseBuilder::new().description(text));
    let response = response.content(PROBLEM, problem(status, codes));
    match status {
        401 => response.header("WWW-Authenticate", header("How a key is given", string())),
        429 => response
            .header("Retry-After", retry_after())
            .header(
                "RateLimit-Policy",
                header("The limit: its name, q and w", string()),
            )
            .header("RateLimit", header("What is left: r and t", string())),
        503 => response.header("Retry-After", retry_after()),
        _ => response,
    }
}

fn retry_after() -> utoipa::openapi::Header {
    let seconds = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1));
    header("Seconds to wait before the call is repeated", seconds)
}

fn parameter(
    name: &str,
    place: ParameterIn,
    text: &str,
    schema: impl Into<RefOr<Schema>>,
) -> Parameter {
    let required = match place {
        ParameterIn::Path => Required::True,
        _ => Required::False,
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(text))
        .schema(Some(schema))
        .build()
}

fn path_kind() -> Parameter {
    parameter(
        "kind",
        ParameterIn::Path,
        "The kind of the target",
        schemas::kind(),
    )
}

fn path_id() -> Parameter {
    let text = "The target; percent-encoded, a / within it too";
    parameter("id", ParameterIn::Path, text, schemas::target_id())
}

fn path_user() -> Parameter {
    let text = "The user; me is the user in X-User-Id or of the token";
    parameter("user", ParameterIn::Path, text, schemas::user())
}

fn path_erased() -> Parameter {
    parameter("user", ParameterIn::Path, "The user", schemas::user())
}

fn path_file() -> Parameter {
    let names = ui::FILES.iter().map(|(name, ..)| *name);
    let schema = string().enum_values(Some(names));
    parameter("file", ParameterIn::Path, "Its name", schema)
}

fn path_job() -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(0));
    parameter("id", ParameterIn::Path, "The number of the job", schema)
}

fn user_header() -> Parameter {
    let text = "For whom the call is; with the token of a user it may be left out";
    parameter("X-User-Id", ParameterIn::Header, text, schemas::user())
}

fn query_kind() -> Parameter {
    parameter(
        "kind",
        ParameterIn::Query,
        "Likes of this kind alone",
        schemas::kind(),
    )
}

fn limit() -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(LIST_LIMIT_MAX))
        .default(Some(json!(LIST_LIMIT)));
    parameter(
        "limit",
        ParameterIn::Query,
        "How many entries at most",
        schema,
    )
}

fn cursor() -> Parameter {
    let text = "Where to go on: the cursor of the answer before, of the same list";
    parameter("cursor", ParameterIn::Query, text, string())
}

fn durability() -> Parameter {
    let text = "ledger: answer only when MySQL has it, or wait_ms is over";
    let schema = string().enum_values(Some(["ledger"]));
    parameter("durability", ParameterIn::Query, text, schema)
}

fn wait_ms() -> Parameter {
    let text = "With durability=ledger: how long to wait, in ms; at most four fifths of request_timeout_ms";
    let schema = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .default(Some(json!(5000)));
    parameter("wait_ms", ParameterIn::Query, text, schema)
}
