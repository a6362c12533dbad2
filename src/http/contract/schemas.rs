//! Schemas that no type of an answer can tell: texts with a pattern, and the bodies that are read by hand.

use utoipa::ToSchema;
use utoipa::openapi::schema::{
    AdditionalProperties, AllOfBuilder, ArrayBuilder, ComponentsBuilder, Object, ObjectBuilder,
    OneOfBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::{KnownFormat, Ref, RefOr, SchemaFormat};

use super::super::{admin, likes, lists, look, lookup, problem, state};
use crate::domain::{ID_BYTES_MAX, KIND_BYTES_MAX};
use crate::flush::{CompensationReport, FlushReport};
use crate::jobs::JobsStatus;
use crate::ledger::FeedStatus;
use crate::limits::{BATCH_OPERATIONS_MAX, LOOKUP_TARGETS_MAX};
use crate::live::Verification;

/// Names of the schemas that are made here.
pub(super) const WRITTEN: &str = "Written";
pub(super) const LOOKUP: &str = "LookupRequest";
pub(super) const BATCH: &str = "BatchRequest";
pub(super) const BATCH_RESULTS: &str = "BatchResults";

fn text(pattern: &str, bytes_max: usize) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(bytes_max))
        .pattern(Some(pattern))
}

/// A user: printable ASCII without spaces.
pub(crate) fn user() -> Object {
    text("^[!-~]+$", ID_BYTES_MAX).build()
}

/// A kind.
pub(crate) fn kind() -> Object {
    text("^[a-z][a-z0-9_-]*$", KIND_BYTES_MAX).build()
}

/// The id of a target: as a user, and neither `.` nor `..`, which proxies rewrite.
pub(crate) fn target_id() -> Object {
    text(r"^(?!\.{1,2}$)[!-~]+$", ID_BYTES_MAX).build()
}

/// A moment.
pub(crate) fn time() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .build()
}

/// A moment, or null.
pub(crate) fn time_or_null() -> Object {
    ObjectBuilder::new()
        .schema_type(SchemaType::Array(vec![Type::String, Type::Null]))
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .build()
}

/// A code of an error.
pub(crate) fn code() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(problem::CODES.map(|(code, _)| code)))
        .build()
}

/// Whether a job is done.
pub(crate) fn job_status() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(["open", "done"]))
        .build()
}

/// Whether a user stands in Redis.
pub(crate) fn residence() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(["complete", "partial", "no"]))
        .build()
}

/// Whether the process is ready.
pub(crate) fn readiness() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(["ready", "degraded", "unavailable", "stopping"]))
        .build()
}

pub(super) fn boolean() -> Object {
    Object::with_type(Type::Boolean)
}

pub(super) fn reference(name: &str) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(name))
}

/// A type and those within it, which the library lists apart.
fn with_parts<T: ToSchema>(all: &mut Vec<(String, RefOr<Schema>)>) {
    all.push((T::name().into_owned(), T::schema()));
    T::schemas(all);
}

/// All of them.
pub(super) fn add(components: ComponentsBuilder) -> ComponentsBuilder {
    let mut sent = Vec::new();
    with_parts::<likes::Likes<'static>>(&mut sent);
    with_parts::<lookup::Results<'static>>(&mut sent);
    with_parts::<lists::Users<'static>>(&mut sent);
    with_parts::<lists::Likes<'static>>(&mut sent);
    with_parts::<lists::Targets<'static>>(&mut sent);
    with_parts::<problem::Wire<'static>>(&mut sent);
    with_parts::<state::Alive>(&mut sent);
    with_parts::<state::Ready>(&mut sent);
    with_parts::<FlushReport>(&mut sent);
    with_parts::<CompensationReport>(&mut sent);
    with_parts::<JobsStatus>(&mut sent);
    with_parts::<FeedStatus>(&mut sent);
    with_parts::<admin::Job>(&mut sent);
    with_parts::<admin::Restored<'static>>(&mut sent);
    with_parts::<Verification>(&mut sent);
    with_parts::<look::TargetLook>(&mut sent);
    with_parts::<look::UserLook>(&mut sent);
    components
        .schemas_from_iter(sent)
        .schema(WRITTEN, written())
        .schema(LOOKUP, lookup_request())
        .schema(BATCH, batch_request())
        .schema(BATCH_RESULTS, batch_results())
}

/// Behind a write both are known: what it wanted, and whether it changed anything.
fn written() -> Schema {
    let known = ObjectBuilder::new()
        .property("liked", boolean())
        .property("changed", boolean())
        .required("liked")
        .required("changed");
    let name = likes::Likes::<'static>::name();
    let all = AllOfBuilder::new().item(reference(&name)).item(known);
    Schema::AllOf(all.build())
}

fn closed() -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
}

/// `{"<name>": [item, …]}` with 1 to `limit` items.
fn list_of(name: &str, item: Object, limit: usize) -> Object {
    let items = ArrayBuilder::new()
        .items(RefOr::T(Schema::Object(item)))
        .min_items(Some(1))
        .max_items(Some(limit));
    closed().property(name, items).required(name).build()
}

fn lookup_request() -> Object {
    let item = closed()
        .property("kind", kind())
        .property("id", target_id())
        .required("kind")
        .required("id");
    list_of("targets", item.build(), LOOKUP_TARGETS_MAX)
}

fn batch_request() -> Object {
    let op = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(["like", "unlike"]));
    let item = ["op", "user", "kind", "id"].into_iter().fold(
        closed()
            .property("op", op)
            .property("user", user())
            .property("kind", kind())
            .property("id", target_id()),
        |item, name| item.required(name),
    );
    list_of("operations", item.build(), BATCH_OPERATIONS_MAX)
}

fn batch_results() -> Object {
    let status = |least: usize, most: usize| {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(least))
            .maximum(Some(most))
    };
    let done = ObjectBuilder::new()
        .property("status", status(200, 200))
        .property("liked", boolean())
        .property("changed", boolean())
        .required("status")
        .required("liked")
        .required("changed");
    let problem = reference(&problem::Wire::<'static>::name());
    let failed = ObjectBuilder::new()
        .property("status", status(400, 599))
        .property("error", problem)
        .required("status")
        .required("error");
    let item = OneOfBuilder::new().item(done).item(failed).build();
    let items = ArrayBuilder::new()
        .items(RefOr::T(Schema::OneOf(item)))
        .min_items(Some(1))
        .max_items(Some(BATCH_OPERATIONS_MAX));
    ObjectBuilder::new()
        .property("results", items)
        .required("results")
        .build()
}
