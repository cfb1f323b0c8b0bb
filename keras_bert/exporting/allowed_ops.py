"""Check the ops and the variable index of a SavedModel before TensorFlow loads it.

A SavedModel is a program. Its ops can write files, read them, open connections and call Python,
some of them while the model loads. The ops listed here compute on tensors, variables and lookup
tables in memory. TensorFlow 2.16 to 2.21 have all of them.
"""

import pathlib
import shutil

from keras_bert.runtime import reading
from keras_bert.runtime.escaping import printable
from keras_bert.untrusted import bundle_index

_MAX_GRAPH = 2**29  # bytes

# Grouped by purpose. The list deliberately lacks ops that read or write files (ReadFile, WriteFile,
# SaveV2, RestoreV2, PrintV2, InitializeTableFromTextFileV2, DecodeProtoV2, the tf.data readers,
# summaries), ops that communicate with other processes (Send, RpcCall, collectives, data service),
# and ops that run other code (PyFunc, XlaCallModule).
_ALLOWED = """
    Const Placeholder PlaceholderWithDefault NoOp Identity IdentityN StopGradient PreventGradient
    EnsureShape Assert CheckNumerics CheckNumericsV2 FakeParam

    If StatelessIf While StatelessWhile Case StatelessCase For PartitionedCall
    StatefulPartitionedCall SymbolicGradient Switch Merge Enter Exit NextIteration LoopCond
    ControlTrigger

    VarHandleOp VarIsInitializedOp ReadVariableOp AssignVariableOp AssignAddVariableOp
    AssignSubVariableOp VariableShape ResourceGather ResourceGatherNd ResourceScatterAdd
    ResourceScatterSub ResourceScatterUpdate ResourceScatterNdUpdate ResourceStridedSliceAssign
    DestroyResourceOp DisableCopyOnRead

    HashTable HashTableV2 AnonymousHashTable MutableHashTableV2 AnonymousMutableHashTable
    MutableDenseHashTableV2 AnonymousMutableDenseHashTable InitializeTable InitializeTableV2
    LookupTableFind LookupTableFindV2 LookupTableSize LookupTableSizeV2 LookupTableInsertV2
    LookupTableExportV2 LookupTableImportV2

    Shape ShapeN Size Rank Reshape ExpandDims Squeeze Pack Unpack Concat ConcatV2 ConcatOffset
    Split SplitV Slice StridedSlice StridedSliceGrad Pad PadV2 MirrorPad Tile BroadcastTo
    BroadcastArgs BroadcastGradientArgs Fill ZerosLike OnesLike Empty Transpose ConjugateTranspose
    Reverse ReverseV2 ReverseSequence Roll Gather GatherV2 GatherNd ScatterNd TensorScatterAdd
    TensorScatterSub TensorScatterUpdate TensorScatterMax TensorScatterMin TensorStridedSliceUpdate
    DynamicPartition DynamicStitch ParallelDynamicStitch OneHot Where Select SelectV2 Range LinSpace
    Diag DiagPart MatrixDiag MatrixDiagV2 MatrixDiagV3 MatrixDiagPart MatrixDiagPartV2
    MatrixDiagPartV3 MatrixBandPart MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 InvertPermutation
    Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 ListDiff UnravelIndex EditDistance
    SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace

    Cast Bitcast Abs Neg Sign Square Sqrt SqrtGrad Rsqrt RsqrtGrad Exp Expm1 Log Log1p Sin Cos Tan
    Asin Acos Atan Atan2 Sinh Cosh Tanh TanhGrad Asinh Acosh Atanh Sigmoid SigmoidGrad Erf Erfc
    Erfinv Ndtri Lgamma Digamma Floor Ceil Round Rint Inv Reciprocal Add AddV2 AddN AccumulateNV2
    Sub Mul MulNoNan Div DivNoNan RealDiv FloorDiv TruncateDiv Mod FloorMod TruncateMod Pow Maximum
    Minimum SquaredDifference Xlogy Xlog1py Xdivy ClipByValue IsFinite IsInf IsNan Equal NotEqual
    Less LessEqual Greater GreaterEqual ApproximateEqual LogicalAnd LogicalOr LogicalNot BitwiseAnd
    BitwiseOr BitwiseXor Invert LeftShift RightShift PopulationCount ToBool

    Sum Mean Prod Max Min All Any ArgMax ArgMin EuclideanNorm Cumsum Cumprod CumulativeLogsumexp
    Bincount DenseBincount TopK TopKV2 NthElement InTopK InTopKV2 LowerBound UpperBound Bucketize
    HistogramFixedWidth SegmentSum SegmentSumV2 SegmentMean SegmentMax SegmentMaxV2 SegmentMin
    SegmentMinV2 SegmentProd UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin
    UnsortedSegmentProd

    MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum Cross L2Loss Cholesky MatrixInverse
    MatrixSolve MatrixTriangularSolve

    BiasAdd BiasAddGrad BiasAddV1 Relu ReluGrad Relu6 Relu6Grad LeakyRelu LeakyReluGrad Elu EluGrad
    Selu SeluGrad Softplus SoftplusGrad Softsign SoftsignGrad Softmax LogSoftmax
    SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits FusedBatchNorm
    FusedBatchNormV2 FusedBatchNormV3 FusedBatchNormGradV3 Conv2D Conv2DBackpropInput
    Conv2DBackpropFilter DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput
    DepthwiseConv2dNativeBackpropFilter Conv3D Conv3DBackpropInputV2 Conv3DBackpropFilterV2
    AvgPool AvgPoolGrad MaxPool MaxPoolGrad

    RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal RandomShuffle Multinomial
    StatefulUniform StatefulStandardNormalV2 RngReadAndSkip RngSkip StatelessRandomUniform
    StatelessRandomUniformV2 StatelessRandomUniformInt StatelessRandomUniformIntV2
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomNormal
    StatelessRandomNormalV2 StatelessTruncatedNormal StatelessTruncatedNormalV2 StatelessMultinomial
    StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg

    AsString StringFormat StringJoin StringLength StringLower StringUpper StringStrip StringSplit
    StringSplitV2 StringNGrams StringToNumber StringToHashBucketFast StringToHashBucketStrong Substr
    ReduceJoin UnsortedSegmentJoin RegexFullMatch RegexReplace StaticRegexFullMatch
    StaticRegexReplace UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript
    UnicodeTranscode DecodeBase64 EncodeBase64 DecodeRaw

    RaggedGather RaggedRange RaggedTensorToTensor RaggedTensorToSparse RaggedTensorToVariant
    RaggedTensorFromVariant RaggedBincount SparseToDense SparseReorder SparseReshape SparseConcat
    SparseSlice SparseTensorDenseMatMul SparseFillEmptyRows SparseReduceSum SparseReduceMax
    SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN

    EmptyTensorList TensorListReserve TensorListFromTensor TensorListStack TensorListGather
    TensorListGetItem TensorListSetItem TensorListLength TensorListPushBack TensorListPopBack
    TensorListConcat TensorListConcatV2 TensorListConcatLists TensorListElementShape
    TensorListResize TensorListScatter TensorListScatterV2 TensorListScatterIntoExistingList
    TensorListSplit TensorArrayV3 TensorArrayReadV3 TensorArrayWriteV3 TensorArrayGatherV3
    TensorArrayScatterV3 TensorArrayConcatV3 TensorArraySplitV3 TensorArraySizeV3 TensorArrayCloseV3

    ParseExample ParseExampleV2 ParseSingleExample
"""
ALLOWED_OPS = frozenset(_ALLOWED.split())
# TensorFlow's own functions that save and restore variables, which loading does not call.
_SAVERS = ("__inference__traced_save", "__inference__traced_restore")
_SAVER_OPS = frozenset({"SaveV2", "RestoreV2", "ShardedFilename", "MergeV2Checkpoints"})


def check(folder):
    """Raise a `ValueError` if a SavedModel has an op outside `ALLOWED_OPS` or a broken index.

    Nothing of the SavedModel runs. The functions that only save and restore variables are not
    checked, because `tf.saved_model.load` does not call them.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    file = pathlib.Path(folder, "saved_model.pb")
    try:
        content = reading.read_bytes(file, _MAX_GRAPH)
        graphs = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    except DecodeError as error:
        raise ValueError(f"{file} is not a SavedModel: {reading.one_line(error)}") from error
    # `tf.saved_model.load` imports the main graph of TensorFlow 1 models and of several graphs.
    has_main = len(graphs) != 1 or not graphs[0].HasField("object_graph_def")
    refused = sorted(set().union(*(_ops(graph, has_main) for graph in graphs)) - ALLOWED_OPS)
    if refused:
        listed = ", ".join(printable(op, 80) for op in refused[:10])
        more = f" and {len(refused) - 10} more" if len(refused) > 10 else ""
        raise ValueError(
            f"{file}: the graph uses ops that are not allowed in an untrusted model: "
            f"{listed}{more}. Such ops can read or write files, open connections or run other "
            "code. If you trust the model's author, pass trusted=True, or --trusted on the command "
            "line."
        )
    variables = pathlib.Path(folder, "variables", "variables")
    if variables.with_name("variables.index").exists():
        try:
            bundle_index.read(variables)  # TensorFlow can crash on a broken index
        except ValueError as error:
            raise ValueError(f"{variables}.index: {error}") from error


def copy(folder, target):
    """Copy the files of a SavedModel that TensorFlow loads to an existing folder.

    Links and special files are a `ValueError`.
    """
    for name in ("saved_model.pb", "fingerprint.pb", "variables", "assets"):
        path = pathlib.Path(folder, name)
        for item in (path, *path.rglob("*")):
            copied = pathlib.Path(target, item.relative_to(folder))
            if item.is_symlink():
                raise ValueError(
                    f"{item} is a link. Copy the SavedModel with cp -rL and load the copy"
                )
            if item.is_dir():
                copied.mkdir()
            elif item.is_file():
                shutil.copyfile(item, copied)
            elif item.exists():
                raise ValueError(f"{item} is not a regular file")


def _ops(graph, has_main):
    """Return the names of the ops in a `MetaGraphDef`; without `has_main`, skip its main graph.

    TensorFlow creates all functions of the library when it loads the graph, so all are included.
    The ops that save and restore variables are left out in functions that nothing uses.
    """
    functions = {each.signature.name: each.node_def for each in graph.graph_def.library.function}
    savers = {name for name in functions if name.startswith(_SAVERS)}
    used = {*graph.object_graph_def.concrete_functions}
    for node in graph.object_graph_def.nodes:
        used.add(node.bare_concrete_function.concrete_function_name)
        used.update(node.function.concrete_functions)
    used.update(each.gradient_func for each in graph.graph_def.library.gradient)
    used.update(each.gradient_func for each in graph.graph_def.library.registered_gradients)
    main = graph.graph_def.node if has_main else ()
    nodes = [*main, *(n for name in functions if name not in savers for n in functions[name])]
    for node in nodes:
        used.add(node.op)
        for attribute in node.attr.values():
            used.update(each.name for each in (attribute.func, *attribute.list.func))
    ops = {node.op for node in nodes}
    for name in savers:
        found = {node.op for node in functions[name]}
        ops |= found if has_main or name in used else found - _SAVER_OPS
    return ops - functions.keys()
